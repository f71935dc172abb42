// All sources of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/base/after_cancellation.cc"
#include "cc/base/call_attributes.cc"
#include "cc/base/compute_pool.cc"
#include "cc/base/core_threads.cc"
#include "cc/base/custom_call.cc"
#include "cc/base/fault_points.cc"
#include "cc/base/json.cc"
#include "cc/base/kernel_threads.cc"
#include "cc/base/machine.cc"
#include "cc/base/memory.cc"
#include "cc/base/process.cc"
#include "cc/base/program_options.cc"
#include "cc/base/tensor_copy.cc"
#include "cc/base/wait_monitor.cc"
#include "cc/base/waiting_threads.cc"
// NOLINTEND(bugprone-suspicious-include)
