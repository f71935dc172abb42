// Makes a function of a cluster of outside compilation, and replaces the cluster with a call to it.
#ifndef TF_TPU_EXT_CC_PASSES_HOST_FUNCTION_H_
#define TF_TPU_EXT_CC_PASSES_HOST_FUNCTION_H_

#include <string>

#include "absl/status/statusor.h"
#include "cc/passes/host_cluster.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/graph/graph.h"

namespace tf_tpu_ext {

// A function made of a cluster's nodes.
struct HostFunction {
  // The same for the same nodes and the same Python line, in every process: it is part of the
  // program that is compiled, and so of the keys of the compilation cache.
  std::string name;
  // The function and all that it calls, serialized.
  std::string library;
  // The Python line that made the cluster, if known.
  std::string source;
};

// The cluster must have been examined, and have no reason to stay.
absl::StatusOr<HostFunction> MakeHostFunction(const HostCluster& cluster,
                                              const tensorflow::FunctionLibraryDefinition& library);

// Replaces the cluster's nodes in the graph with a call to the function.
absl::StatusOr<tensorflow::Node*> ReplaceByCall(const HostCluster& cluster,
                                                const HostFunction& function,
                                                tensorflow::Graph* graph);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PASSES_HOST_FUNCTION_H_
