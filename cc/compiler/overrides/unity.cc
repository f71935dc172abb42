// All sources of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/compiler/overrides/checked_ops.cc"
#include "cc/compiler/overrides/dynamic_element_kernels.cc"
#include "cc/compiler/overrides/dynamic_kernel.cc"
#include "cc/compiler/overrides/dynamic_ops.cc"
#include "cc/compiler/overrides/dynamic_slice_kernels.cc"
#include "cc/compiler/overrides/dynamic_window_kernels.cc"
#include "cc/compiler/overrides/override_ops.cc"
#include "cc/compiler/overrides/tensorflow_kernels.cc"
#include "cc/compiler/overrides/tensorflow_xla_kernels.cc"
// NOLINTEND(bugprone-suspicious-include)
