// All tests of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/compiler/replicas/batch_replicas_test.cc"
#include "cc/compiler/replicas/batched_calls_test.cc"
#include "cc/compiler/replicas/batching_rules_of_products_test.cc"
#include "cc/compiler/replicas/batching_rules_test.cc"
#include "cc/compiler/replicas/group_replicas_test.cc"
#include "cc/compiler/replicas/split_update_test.cc"
// NOLINTEND(bugprone-suspicious-include)
