// Makes a watched program tell which replicas reach a cluster of the host graph.
#ifndef TF_TPU_EXT_CC_PASSES_CLUSTER_NOTE_H_
#define TF_TPU_EXT_CC_PASSES_CLUSTER_NOTE_H_

#include <string>

#include "absl/status/statusor.h"
#include "cc/passes/host_cluster.h"
#include "tensorflow/core/graph/graph.h"

namespace tf_tpu_ext {

// Adds a call of an empty host function with that name, which a replica makes when it has reached
// the cluster: the cluster itself may exchange nothing with the program.
absl::StatusOr<tensorflow::Node*> AddNote(const HostCluster& cluster, const std::string& name,
                                          tensorflow::Graph* graph);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PASSES_CLUSTER_NOTE_H_
