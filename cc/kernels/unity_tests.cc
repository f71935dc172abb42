// All tests of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/kernels/compilation_status_test.cc"
#include "cc/kernels/core_function_test.cc"
#include "cc/kernels/core_placement_test.cc"
#include "cc/kernels/cpu_first_test.cc"
#include "cc/kernels/host_kernels_test.cc"
#include "cc/kernels/host_side_kernels_test.cc"
#include "cc/kernels/jit_kernel_test.cc"
#include "cc/kernels/jit_with_host_test.cc"
#include "cc/kernels/ordered_update_test.cc"
#include "cc/kernels/program_kernels_test.cc"
// NOLINTEND(bugprone-suspicious-include)
