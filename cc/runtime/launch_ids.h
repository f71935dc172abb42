// The launch id of a step: how the compile op tells all ops of one step that they belong together.
#ifndef TF_TPU_EXT_CC_RUNTIME_LAUNCH_IDS_H_
#define TF_TPU_EXT_CC_RUNTIME_LAUNCH_IDS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_tpu_ext {

// Where a compile op stands if every replica of a step has its own, as where the shape of an
// argument is known only inside the replica.
struct ReplicaPlace {
  // The same for the replicas of one replicated computation and no other of its graph.
  std::string group;
  int replica = -1;

  bool in_replica() const { return replica >= 0; }
};

// Reads the place from the op's name and the bridge's attribute `_parallel_execution_ids`, such as
// "r0:3": group 0, replica 3. A compile op that serves all replicas has none.
ReplicaPlace ParseReplicaPlace(absl::string_view op_name, absl::string_view parallel_ids);

// A number that no other launch of the process has.
int64_t NextLaunchId();

// The id that all replicas of the group get in this run of the graph, and in this iteration of a
// loop around them.
absl::StatusOr<int64_t> LaunchIdOfReplica(tensorflow::OpKernelContext* context,
                                          const ReplicaPlace& place, int num_replicas);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_LAUNCH_IDS_H_
