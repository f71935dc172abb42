// One cluster of outside compilation in a graph: what goes in and out, and whether it is closed.
#ifndef TF_TPU_EXT_CC_PASSES_HOST_CLUSTER_H_
#define TF_TPU_EXT_CC_PASSES_HOST_CLUSTER_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "tensorflow/compiler/jit/shape_inference.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/graph/graph.h"

namespace tf_tpu_ext {

struct HostCluster {
  // The computation that it belongs to.
  std::string owner;
  // The same where its ops are marked with it; empty in the body of a loop or branch.
  std::string computation;
  std::string name;
  std::vector<tensorflow::Node*> nodes;
  absl::flat_hash_set<const tensorflow::Node*> members;
  // Tensors that enter, and that leave with their shapes.
  std::vector<tensorflow::OutputTensor> inputs;
  std::vector<tensorflow::OutputTensor> outputs;
  std::vector<tensorflow::TensorShape> output_shapes;
  // Constants from outside, small enough to be copied.
  std::vector<tensorflow::Node*> constants;
  // Its own constants that the computation uses, too: it keeps them, and their values with them.
  absl::flat_hash_set<const tensorflow::Node*> shared_constants;
  bool has_effects = false;
  // Why it cannot become a function; empty if it can.
  std::string reason;
};

// Finds what enters and leaves the cluster, and whether one closed function can stand for it.
void Examine(const tensorflow::GraphShapeInfo& shapes,
             const tensorflow::FunctionLibraryDefinition& library, HostCluster* cluster);

// Gives the computation the outputs that can be known now, so that they stay known to it: sizes and
// row splits, mostly. Returns whether there were any; then the cluster must be examined again.
absl::StatusOr<bool> TakeOutConstantOutputs(const HostCluster& cluster, tensorflow::Graph* graph);

// The Python line that made the cluster, "file:line"; empty if it is not known.
std::string SourceOf(const HostCluster& cluster);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PASSES_HOST_CLUSTER_H_
