// A cluster of outside compilation in a graph: what enters and leaves it, and whether it can become
// a function.
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
  // The same if its ops are marked with it; empty in the body of a loop or branch.
  std::string computation;
  std::string name;
  std::vector<tensorflow::Node*> nodes;
  absl::flat_hash_set<const tensorflow::Node*> members;
  // Tensors that enter, and tensors that leave, with their shapes.
  std::vector<tensorflow::OutputTensor> inputs;
  std::vector<tensorflow::OutputTensor> outputs;
  std::vector<tensorflow::TensorShape> output_shapes;
  // Constants from outside, small enough to be copied.
  std::vector<tensorflow::Node*> constants;
  // The cluster's own constants that the computation uses too: it keeps them, so their values stay
  // known.
  absl::flat_hash_set<const tensorflow::Node*> shared_constants;
  bool has_effects = false;
  // Why the cluster cannot become a function; empty if it can.
  std::string reason;
};

// Finds what enters and leaves the cluster, and whether one function can replace it.
void Examine(const tensorflow::GraphShapeInfo& shapes,
             const tensorflow::FunctionLibraryDefinition& library, HostCluster* cluster);

// Moves outputs whose values can be known now, mostly sizes and row splits, into the computation,
// so that they stay known there. Returns whether there were any; if so, the cluster must be
// examined again.
absl::StatusOr<bool> TakeOutConstantOutputs(const HostCluster& cluster, tensorflow::Graph* graph);

// The Python line that made the cluster, as "file:line"; empty if unknown.
std::string SourceOf(const HostCluster& cluster);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PASSES_HOST_CLUSTER_H_
