// All tests of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/passes/bridge_error_test.cc"
#include "cc/passes/bridge_passes_test.cc"
#include "cc/passes/compile_marks_test.cc"
#include "cc/passes/dynamic_shape_marks_test.cc"
#include "cc/passes/fold_clusters_test.cc"
#include "cc/passes/form_pod_test.cc"
#include "cc/passes/host_cluster_test.cc"
#include "cc/passes/host_races_test.cc"
#include "cc/passes/launch_from_host_test.cc"
#include "cc/passes/order_computations_test.cc"
#include "cc/passes/run_on_caller_test.cc"
#include "cc/passes/session_passes_test.cc"
#include "cc/passes/stale_functions_test.cc"
#include "cc/passes/switch_branches_test.cc"
// NOLINTEND(bugprone-suspicious-include)
