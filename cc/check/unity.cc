// All sources of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/check/findings.cc"
#include "cc/check/probe_custom_call.cc"
#include "cc/check/shown_values.cc"
#include "cc/check/step_check.cc"
#include "cc/check/value_summary.cc"
// NOLINTEND(bugprone-suspicious-include)
