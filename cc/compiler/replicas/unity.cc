// All sources of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/compiler/replicas/batch_replicas.cc"
#include "cc/compiler/replicas/batched_calls.cc"
#include "cc/compiler/replicas/batched_collectives.cc"
#include "cc/compiler/replicas/batched_computation.cc"
#include "cc/compiler/replicas/batching_rules.cc"
#include "cc/compiler/replicas/batching_rules_of_products.cc"
#include "cc/compiler/replicas/group_replicas.cc"
#include "cc/compiler/replicas/one_by_one.cc"
#include "cc/compiler/replicas/replica_batcher.cc"
#include "cc/compiler/replicas/split_update.cc"
#include "cc/compiler/replicas/update_parts.cc"
// NOLINTEND(bugprone-suspicious-include)
