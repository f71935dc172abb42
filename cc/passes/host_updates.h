#ifndef TF_TPU_EXT_CC_PASSES_HOST_UPDATES_H_
#define TF_TPU_EXT_CC_PASSES_HOST_UPDATES_H_

#include "absl/status/statusor.h"
#include "cc/passes/host_cluster.h"
#include "tensorflow/core/graph/graph.h"

namespace tf_tpu_ext {

// Replaces updates of variables in the cluster, and in the functions that it calls, with overrides
// (see host_update_ops.h). The bridge would split each update into a read and a write: the replicas
// share the variable, and no update may be lost between the two.
absl::Status KeepUpdatesWhole(HostCluster* cluster, tensorflow::Graph* graph,
                              tensorflow::FunctionLibraryDefinition* library);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PASSES_HOST_UPDATES_H_
