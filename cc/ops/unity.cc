// All sources of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/ops/all_to_all_shapes.cc"
#include "cc/ops/host_handle_op.cc"
#include "cc/ops/host_update_ops.cc"
#include "cc/ops/pipeline_op.cc"
#include "cc/ops/reachable_nodes.cc"
#include "cc/ops/replica_groups.cc"
#include "cc/ops/transfer_ops.cc"
#include "cc/ops/variable_handle_op.cc"
#include "cc/ops/window_ops.cc"
// NOLINTEND(bugprone-suspicious-include)
