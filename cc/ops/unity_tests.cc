// All tests of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/ops/op_shapes_test.cc"
#include "cc/ops/reachable_nodes_test.cc"
#include "cc/ops/replica_groups_test.cc"
#include "cc/ops/window_ops_test.cc"
// NOLINTEND(bugprone-suspicious-include)
