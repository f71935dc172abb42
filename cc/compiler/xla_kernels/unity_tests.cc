// All tests of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/compiler/xla_kernels/collective_xla_kernels_test.cc"
#include "cc/compiler/xla_kernels/tpu_only_xla_kernels_test.cc"
// NOLINTEND(bugprone-suspicious-include)
