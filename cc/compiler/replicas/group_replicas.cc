#include "cc/compiler/replicas/group_replicas.h"

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "cc/compiler/hlo/computation_cost.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

// Starting a run costs as much as computing this many elements.
constexpr int64_t kRunCost = 50'000;
// A group must cost less than this fraction of its replicas' total cost to be worthwhile: its
// arrays take more memory, and don't stay warm in a cache as those of a single replica do.
constexpr double kMostOfAlone = 0.95;

}  // namespace

int GroupSize(int num_replicas, int num_processors) {
  int groups = std::max(2, num_processors);
  while (groups < num_replicas && num_replicas % groups != 0) ++groups;
  return groups < num_replicas ? num_replicas / groups : 1;
}

absl::StatusOr<BatchedModule> GroupReplicas(const xla::HloModule& module, BatchOptions options,
                                            int num_processors) {
  const int replicas = options.num_replicas;
  const ComputationCost alone = CostOf(module);
  if (alone.in_loops > 0) {
    options.group_size = replicas;
    absl::StatusOr<BatchedModule> batched = BatchReplicas(module, options);
    if (batched.ok()) {
      // A replica on its own computes its own part, and everything that is the same for all.
      const ComputationCost together = CostOf(*batched->module);
      const auto of_single_replicas = [&](int64_t together, int64_t alone) {
        return (together - alone) * replicas / std::max(1, replicas - 1);
      };
      const int64_t repeated =
          together.in_loops - of_single_replicas(together.in_loops, alone.in_loops);
      if (repeated > of_single_replicas(together.all, alone.all)) return batched;
    }
  }
  options.group_size = GroupSize(replicas, num_processors);
  if (options.group_size == 1) {
    return absl::UnimplementedError("there is a processor for each replica");
  }
  TF_ASSIGN_OR_RETURN(BatchedModule batched, BatchReplicas(module, options));
  const int64_t together = CostOf(*batched.module).all;
  if (together + kRunCost > kMostOfAlone * options.group_size * (alone.all + kRunCost)) {
    return absl::UnimplementedError("a group computes nearly as much as its replicas");
  }
  return batched;
}

}  // namespace tf_tpu_ext
