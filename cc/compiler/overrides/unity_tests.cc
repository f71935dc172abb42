// All tests of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/compiler/overrides/checked_ops_test.cc"
#include "cc/compiler/overrides/dynamic_kernels_test.cc"
#include "cc/compiler/overrides/dynamic_slice_kernels_test.cc"
#include "cc/compiler/overrides/dynamic_window_kernels_test.cc"
#include "cc/compiler/overrides/override_ops_test.cc"
#include "cc/compiler/overrides/tensorflow_kernels_test.cc"
#include "cc/compiler/overrides/tensorflow_xla_kernels_test.cc"
// NOLINTEND(bugprone-suspicious-include)
