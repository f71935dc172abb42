// All tests of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/describe/describe_test.cc"
// NOLINTEND(bugprone-suspicious-include)
