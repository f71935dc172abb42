// All tests of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/check/shown_values_test.cc"
#include "cc/check/step_check_test.cc"
#include "cc/check/value_summary_test.cc"
// NOLINTEND(bugprone-suspicious-include)
