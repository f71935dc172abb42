// All sources of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/compiler/xla_kernels/collective_xla_kernels.cc"
#include "cc/compiler/xla_kernels/tpu_backend.cc"
#include "cc/compiler/xla_kernels/tpu_only_xla_kernels.cc"
// NOLINTEND(bugprone-suspicious-include)
