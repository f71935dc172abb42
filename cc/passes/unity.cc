// All sources of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/passes/bridge_error.cc"
#include "cc/passes/bridge_passes.cc"
#include "cc/passes/compile_marks.cc"
#include "cc/passes/fold_clusters.cc"
#include "cc/passes/host_cluster.cc"
#include "cc/passes/host_function.cc"
#include "cc/passes/host_updates.cc"
#include "cc/passes/launch_from_host.cc"
#include "cc/passes/launch_groups.cc"
#include "cc/passes/order_computations.cc"
#include "cc/passes/packed_variable_shapes.cc"
#include "cc/passes/preparing_passes.cc"
#include "cc/passes/run_on_caller.cc"
#include "cc/passes/shared_identities.cc"
#include "cc/passes/stale_functions.cc"
// NOLINTEND(bugprone-suspicious-include)
