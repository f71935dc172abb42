// All sources of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/sparse_core/coo.cc"
#include "cc/sparse_core/coo_kernels.cc"
#include "cc/sparse_core/copy_kernels.cc"
#include "cc/sparse_core/csr.cc"
#include "cc/sparse_core/csr_kernels.cc"
#include "cc/sparse_core/custom_update_xla_kernel.cc"
#include "cc/sparse_core/lookup_xla_kernels.cc"
#include "cc/sparse_core/minibatch_splits.cc"
#include "cc/sparse_core/sharded_table.cc"
#include "cc/sparse_core/sorted_ids.cc"
#include "cc/sparse_core/sparse_core_custom_calls.cc"
#include "cc/sparse_core/sparse_core_xla_kernel.cc"
#include "cc/sparse_core/update_xla_kernels.cc"
// NOLINTEND(bugprone-suspicious-include)
