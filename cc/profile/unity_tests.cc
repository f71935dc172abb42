// All tests of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/profile/core_planes_test.cc"
#include "cc/profile/hlo_ops_test.cc"
#include "cc/profile/meetings_test.cc"
#include "cc/profile/profiler_test.cc"
#include "cc/profile/recorder_test.cc"
#include "cc/profile/serial_spans_test.cc"
#include "cc/profile/thunk_events_test.cc"
// NOLINTEND(bugprone-suspicious-include)
