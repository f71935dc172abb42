// All tests of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/base/after_cancellation_test.cc"
#include "cc/base/call_attributes_test.cc"
#include "cc/base/core_threads_test.cc"
#include "cc/base/custom_call_test.cc"
#include "cc/base/fault_points_test.cc"
#include "cc/base/json_test.cc"
#include "cc/base/kernel_threads_test.cc"
#include "cc/base/machine_test.cc"
#include "cc/base/memory_test.cc"
#include "cc/base/number_test.cc"
#include "cc/base/program_options_test.cc"
#include "cc/base/tensor_copy_test.cc"
#include "cc/base/user_lines_test.cc"
#include "cc/base/wait_monitor_test.cc"
#include "cc/base/waiting_threads_test.cc"
// NOLINTEND(bugprone-suspicious-include)
