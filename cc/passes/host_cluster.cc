#include "cc/passes/host_cluster.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cc/base/user_lines.h"
#include "cc/ops/op_names.h"
#include "cc/ops/reachable_nodes.h"
#include "tensorflow/core/common_runtime/eval_const_tensor.h"
#include "tensorflow/core/common_runtime/shape_refiner.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::DataType;
using tensorflow::Edge;
using tensorflow::FunctionDef;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::Graph;
using tensorflow::Node;
using tensorflow::NodeDef;
using tensorflow::OutputTensor;

// Larger constants are sent like any other tensor.
constexpr int64_t kMaxCopiedConstantBytes = 4096;
constexpr int64_t kMaxCopiedConstantElements = 256;
// The function travels within the program's text.
constexpr size_t kMaxFunctionBytes = size_t{4} << 20;

// Types of arrays that XLA represents bit by bit in the same way.
bool CanCross(DataType type) {
  switch (type) {
    case tensorflow::DT_BOOL:
    case tensorflow::DT_INT8:
    case tensorflow::DT_INT16:
    case tensorflow::DT_INT32:
    case tensorflow::DT_INT64:
    case tensorflow::DT_UINT8:
    case tensorflow::DT_UINT16:
    case tensorflow::DT_UINT32:
    case tensorflow::DT_UINT64:
    case tensorflow::DT_HALF:
    case tensorflow::DT_BFLOAT16:
    case tensorflow::DT_FLOAT:
    case tensorflow::DT_DOUBLE:
    case tensorflow::DT_COMPLEX64:
    case tensorflow::DT_COMPLEX128:
      return true;
    default:
      return false;
  }
}

bool IsSmallConstant(const Node& node) {
  if (!node.IsConstant()) return false;
  const tensorflow::AttrValue* value = node.attrs().Find("value");
  return value != nullptr && static_cast<int64_t>(value->ByteSizeLong()) <= kMaxCopiedConstantBytes;
}

// Whether the op touches state that others may see, or that outlives a call.
bool TouchesSharedState(const tensorflow::OpDef& op, const NodeDef& node) {
  const auto shared = [](DataType type) {
    return type == tensorflow::DT_RESOURCE || tensorflow::IsRefType(type);
  };
  for (const auto* arguments : {&op.input_arg(), &op.output_arg()}) {
    for (const auto& argument : *arguments) {
      tensorflow::DataTypeVector types;
      if (argument.is_ref()) return true;
      if (!argument.type_list_attr().empty()) {
        if (!tensorflow::GetNodeAttr(node, argument.type_list_attr(), &types).ok()) return true;
      } else if (!argument.type_attr().empty()) {
        types.resize(1);
        if (!tensorflow::GetNodeAttr(node, argument.type_attr(), &types[0]).ok()) return true;
      } else {
        types.push_back(argument.type());
      }
      if (std::any_of(types.begin(), types.end(), shared)) return true;
    }
  }
  return false;
}

std::string CannotFold(const std::string& what, const NodeDef& node) {
  return absl::StrCat(what, ": ", node.name(), " (", node.op(), ")");
}

// Why an op cannot be in a function that the program calls with nothing but its arguments.
std::string WhyNotAlone(const NodeDef& node, const FunctionLibraryDefinition& library,
                        absl::flat_hash_set<std::string>* seen, bool* has_effects) {
  const tensorflow::OpDef* op = nullptr;
  if (!library.LookUpOpDef(node.op(), &op).ok()) return CannotFold("an unknown op", node);
  if (op->is_stateful()) *has_effects = true;
  if (TouchesSharedState(*op, node)) return CannotFold("it touches state of the host", node);
  static const auto* const connected = new absl::flat_hash_set<std::string>(
      {"Switch", "RefSwitch", "Merge", "RefMerge", "Enter", "RefEnter", "Exit", "RefExit",
       "NextIteration", "RefNextIteration", "LoopCond", "_Send", "_Recv", "_HostSend", "_HostRecv",
       "Send", "Recv", "Placeholder", "PlaceholderWithDefault"});
  if (connected->contains(node.op()) || absl::StartsWith(node.op(), "Collective")) {
    return CannotFold("an op that needs the graph around it", node);
  }
  // The bridge puts these before the program, which waits for them, and tells them their core.
  if (absl::StrContains(node.op(), "EnqueueTPUEmbedding")) {
    return CannotFold("it queues an embedding batch", node);
  }
  // The same holds for these, whose ids have a different shape in each step: the program, which
  // sees only their buffers, stays the same.
  if (node.op() == "ConvertToListOfSparseCoreCooTensors" || node.op() == "ConvertToCooTensor" ||
      node.op() == "TPUCopyWithDynamicShape") {
    return CannotFold("it prepares ids for SparseCores", node);
  }
  std::vector<std::string> callees = FunctionsCalledBy(node);
  if (library.Contains(node.op())) callees.push_back(node.op());
  for (const std::string& callee : callees) {
    // Also ends recursion.
    if (!seen->insert(callee).second) continue;
    const FunctionDef* function = library.Find(callee);
    if (function == nullptr) return CannotFold("a call of an unknown function", node);
    for (const NodeDef& inner : function->node_def()) {
      std::string reason = WhyNotAlone(inner, library, seen, has_effects);
      if (!reason.empty()) return reason;
    }
  }
  return "";
}

// Whether the computation itself makes the tensors of `node`.
bool IsOfComputation(const Node& node, const HostCluster& cluster) {
  if (cluster.computation.empty() || node.type_string() == "TPUReplicatedInput") return true;
  const tensorflow::AttrValue* owner = node.attrs().Find(kTpuReplicate);
  return owner != nullptr && owner->s() == cluster.computation;
}

std::string NodeText(const Node& node) {
  return absl::StrCat(node.name(), " (", node.type_string(), ")");
}

bool IsUsedOutside(const HostCluster& cluster, const Edge& edge) {
  return !edge.IsControlEdge() && !edge.dst()->IsSink() && !cluster.members.contains(edge.dst());
}

// Whether one node can replace the whole cluster: no path leads out of it and back in.
bool IsConvex(const HostCluster& cluster) {
  std::vector<const Node*> open;
  absl::flat_hash_set<const Node*> seen;
  const auto visit = [&](const Node* node) {
    for (const Edge* edge : node->out_edges()) {
      const Node* next = edge->dst();
      // The next iteration of a loop is another call.
      if (next->IsSink() || node->IsNextIteration()) continue;
      if (cluster.members.contains(next)) {
        if (!cluster.members.contains(node)) return false;
        continue;
      }
      if (seen.insert(next).second) open.push_back(next);
    }
    return true;
  };
  for (const Node* node : cluster.nodes) {
    // Outside users of such a constant use the one that the computation keeps.
    if (!cluster.shared_constants.contains(node)) visit(node);
  }
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    if (!visit(node)) return false;
  }
  return true;
}

// Fills in what enters and leaves a cluster. The first obstacle found becomes the cluster's reason,
// unless it already has one.
class Examination {
 public:
  Examination(const tensorflow::GraphShapeInfo& shapes, const FunctionLibraryDefinition& library,
              HostCluster* cluster)
      : shapes_(shapes), library_(library), cluster_(*cluster) {}

  void Run() {
    // The graph may have changed since the cluster was last examined.
    cluster_.inputs.clear();
    cluster_.outputs.clear();
    cluster_.output_shapes.clear();
    cluster_.constants.clear();
    cluster_.shared_constants.clear();
    size_t bytes = 0;
    for (Node* node : cluster_.nodes) {
      bytes += node->def().ByteSizeLong();
      Refuse(WhyNotAlone(node->def(), library_, &callees_, &cluster_.has_effects));
      FindInputs(*node);
    }
    for (Node* node : cluster_.nodes) FindOutputs(node);
    if (bytes > kMaxFunctionBytes) {
      Refuse(absl::StrCat("it is large: ", bytes, " bytes, of ", kMaxFunctionBytes));
    }
    // This comes last: it walks the graph, and needs to know which constants stay.
    if (cluster_.reason.empty() && !IsConvex(cluster_)) {
      Refuse("the rest of the computation works between its ops");
    }
  }

 private:
  void Refuse(std::string reason) {
    if (cluster_.reason.empty()) cluster_.reason = std::move(reason);
  }

  // Follows the order of the node's inputs, so that the same graph always gives the same function.
  void FindInputs(const Node& node) {
    std::vector<const Edge*> inputs(node.num_inputs());
    for (const Edge* edge : node.in_edges()) {
      if (!edge->IsControlEdge()) inputs[edge->dst_input()] = edge;
    }
    for (const Edge* edge : inputs) {
      if (edge != nullptr && !cluster_.members.contains(edge->src())) AddInput(*edge);
    }
  }

  void AddInput(const Edge& edge) {
    Node* const source = edge.src();
    // A copy costs less than a transfer in every step, and its value stays known.
    if (IsSmallConstant(*source)) {
      if (copied_.insert(source).second) cluster_.constants.push_back(source);
      return;
    }
    if (!known_.insert({source, edge.src_output()}).second) return;
    if (!IsOfComputation(*source, cluster_)) {
      Refuse(absl::StrCat("it takes a tensor of the host: ", NodeText(*source)));
    }
    const DataType type = source->output_type(edge.src_output());
    if (!CanCross(type)) {
      Refuse(absl::StrCat("it takes a ", tensorflow::DataTypeString(type), " from ",
                          NodeText(*source)));
    }
    cluster_.inputs.emplace_back(source, edge.src_output());
  }

  void FindOutputs(Node* node) {
    std::vector<bool> used(node->num_outputs(), false);
    for (const Edge* edge : node->out_edges()) {
      if (IsUsedOutside(cluster_, *edge)) used[edge->src_output()] = true;
    }
    // The computation keeps such a constant, and the function gets a copy.
    if (IsSmallConstant(*node) && CanCross(node->output_type(0))) {
      if (used[0]) cluster_.shared_constants.insert(node);
      return;
    }
    for (int output = 0; output < node->num_outputs(); ++output) {
      if (used[output]) AddOutput(node, output);
    }
  }

  void AddOutput(Node* node, int output) {
    const DataType type = node->output_type(output);
    if (!CanCross(type)) {
      Refuse(absl::StrCat("it gives a ", tensorflow::DataTypeString(type), ": ", NodeText(*node)));
    }
    // The compiled program has memory for the result before the host computes it.
    tensorflow::TensorShape shape;
    const auto inferred = shapes_.find(node->name());
    if (inferred == shapes_.end() || output >= static_cast<int>(inferred->second.size()) ||
        !inferred->second[output].shape.AsTensorShape(&shape)) {
      Refuse(absl::StrCat("the shape of its result is not known: ", NodeText(*node)));
    }
    cluster_.outputs.emplace_back(node, output);
    cluster_.output_shapes.push_back(std::move(shape));
  }

  const tensorflow::GraphShapeInfo& shapes_;
  const FunctionLibraryDefinition& library_;
  HostCluster& cluster_;
  absl::flat_hash_set<std::string> callees_;  // what WhyNotAlone has examined
  absl::flat_hash_set<std::pair<const Node*, int>> known_;
  absl::flat_hash_set<const Node*> copied_;
};

// The value that the output has regardless of the graph's inputs, or nothing if it can't be known.
std::optional<tensorflow::Tensor> ConstantValue(const OutputTensor& output, const Graph& graph) {
  const tensorflow::ShapeRefiner refiner(graph.versions(), graph.op_registry());
  tensorflow::EvaluateConstantTensorRunner runner;
  runner.op_registry = graph.op_registry();
  runner.graph_def_version = graph.versions().producer();
  return tensorflow::EvaluateConstantTensor(
             *output.node, output.index, refiner,
             [](const Node&, int) { return std::optional<tensorflow::Tensor>(); }, runner)
      .value_or(std::nullopt);
}

}  // namespace

void Examine(const tensorflow::GraphShapeInfo& shapes, const FunctionLibraryDefinition& library,
             HostCluster* cluster) {
  Examination(shapes, library, cluster).Run();
}

std::string SourceOf(const HostCluster& cluster) {
  for (const Node* node : cluster.nodes) {
    const SourceLine line = UserLine(node->GetStackTrace().get());
    if (line.known()) return line.Text();
    std::string marked;
    if (tensorflow::TryGetNodeAttr(node->attrs(), kPythonLine, &marked)) return marked;
  }
  return "";
}

absl::StatusOr<bool> TakeOutConstantOutputs(const HostCluster& cluster, Graph* graph) {
  bool any = false;
  for (size_t i = 0; i < cluster.outputs.size(); ++i) {
    const OutputTensor& output = cluster.outputs[i];
    if (cluster.output_shapes[i].num_elements() > kMaxCopiedConstantElements) continue;
    const std::optional<tensorflow::Tensor> value = ConstantValue(output, *graph);
    if (!value.has_value()) continue;
    NodeDef definition;
    definition.set_name(graph->NewName(absl::StrCat(output.node->name(), "/value")));
    definition.set_op("Const");
    tensorflow::AddNodeAttr("dtype", value->dtype(), &definition);
    tensorflow::AddNodeAttr("value", *value, &definition);
    if (!cluster.computation.empty()) {
      tensorflow::AddNodeAttr(kTpuReplicate, cluster.computation, &definition);
    }
    TF_ASSIGN_OR_RETURN(Node* const constant, graph->AddNode(std::move(definition)));
    // A copy, because the loop changes the edges.
    const std::vector<const Edge*> edges(output.node->out_edges().begin(),
                                         output.node->out_edges().end());
    for (const Edge* edge : edges) {
      if (edge->src_output() != output.index || !IsUsedOutside(cluster, *edge)) continue;
      TF_RETURN_IF_ERROR(graph->UpdateEdge(constant, 0, edge->dst(), edge->dst_input()));
    }
    any = true;
  }
  return any;
}

}  // namespace tf_tpu_ext
