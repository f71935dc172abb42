// All sources of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/profile/core_planes.cc"
#include "cc/profile/hlo_ops.cc"
#include "cc/profile/machine_rates.cc"
#include "cc/profile/meetings.cc"
#include "cc/profile/profiler.cc"
#include "cc/profile/recorder.cc"
#include "cc/profile/serial_spans.cc"
#include "cc/profile/thunk_events.cc"
// NOLINTEND(bugprone-suspicious-include)
