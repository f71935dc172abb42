#include "cc/passes/host_cluster.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cc/ops/op_names.h"
#include "tensorflow/core/common_runtime/eval_const_tensor.h"
#include "tensorflow/core/common_runtime/shape_refiner.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/graph_to_functiondef.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/lib/strings/proto_serialization.h"
#include "tensorflow/core/platform/fingerprint.h"

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

// State that others may see, or that lives longer than a call.
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

// Why an op cannot stand in a function that the program calls, alone with its arguments.
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
  std::vector<std::string> callees;
  if (library.Contains(node.op())) callees.push_back(node.op());
  for (const auto& [name, value] : node.attr()) {
    if (value.has_func()) callees.push_back(value.func().name());
    for (const auto& function : value.list().func()) callees.push_back(function.name());
  }
  for (const std::string& callee : callees) {
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

// Whether one node can stand for the whole cluster: no path leads out of it and back in.
bool IsConvex(const HostCluster& cluster) {
  std::vector<const Node*> open;
  absl::flat_hash_set<const Node*> seen;
  const auto visit = [&](const Node* node) {
    for (const Edge* edge : node->out_edges()) {
      const Node* next = edge->dst();
      // The next round of a loop is another call.
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
    if (!cluster.shared_constants.contains(node)) visit(node);
  }
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    if (!visit(node)) return false;
  }
  return true;
}

void RemoveMarks(Node* node) {
  node->set_requested_device("");
  for (const char* name : {kOutsideCompilation, kTpuReplicate, "_class"}) node->ClearAttr(name);
}

}  // namespace

void Examine(const tensorflow::GraphShapeInfo& shapes, const FunctionLibraryDefinition& library,
             HostCluster* cluster) {
  cluster->inputs.clear();
  cluster->outputs.clear();
  cluster->output_shapes.clear();
  cluster->constants.clear();
  cluster->shared_constants.clear();
  absl::flat_hash_set<std::string> seen;
  absl::flat_hash_set<std::pair<const Node*, int>> known;
  absl::flat_hash_set<const Node*> copied;
  const auto refuse = [cluster](std::string reason) {
    if (cluster->reason.empty()) cluster->reason = std::move(reason);
  };
  size_t bytes = 0;
  for (Node* node : cluster->nodes) {
    bytes += node->def().ByteSizeLong();
    refuse(WhyNotAlone(node->def(), library, &seen, &cluster->has_effects));
    std::vector<const Edge*> inputs(node->num_inputs());
    for (const Edge* edge : node->in_edges()) {
      if (!edge->IsControlEdge()) inputs[edge->dst_input()] = edge;
    }
    for (const Edge* edge : inputs) {
      if (edge == nullptr || cluster->members.contains(edge->src())) continue;
      if (IsSmallConstant(*edge->src())) {
        if (copied.insert(edge->src()).second) cluster->constants.push_back(edge->src());
        continue;
      }
      if (!known.insert({edge->src(), edge->src_output()}).second) continue;
      if (!IsOfComputation(*edge->src(), *cluster)) {
        refuse(absl::StrCat("it takes a tensor of the host: ", NodeText(*edge->src())));
      }
      const DataType type = edge->src()->output_type(edge->src_output());
      if (!CanCross(type)) {
        refuse(absl::StrCat("it takes a ", tensorflow::DataTypeString(type), " from ",
                            NodeText(*edge->src())));
      }
      cluster->inputs.emplace_back(edge->src(), edge->src_output());
    }
  }
  for (Node* node : cluster->nodes) {
    std::vector<bool> used(node->num_outputs(), false);
    for (const Edge* edge : node->out_edges()) {
      if (IsUsedOutside(*cluster, *edge)) used[edge->src_output()] = true;
    }
    if (IsSmallConstant(*node) && CanCross(node->output_type(0))) {
      if (used[0]) cluster->shared_constants.insert(node);
      continue;
    }
    const auto inferred = shapes.find(node->name());
    for (int output = 0; output < node->num_outputs(); ++output) {
      if (!used[output]) continue;
      const DataType type = node->output_type(output);
      if (!CanCross(type)) {
        refuse(
            absl::StrCat("it gives a ", tensorflow::DataTypeString(type), ": ", NodeText(*node)));
      }
      tensorflow::TensorShape shape;
      if (inferred == shapes.end() || output >= static_cast<int>(inferred->second.size()) ||
          !inferred->second[output].shape.AsTensorShape(&shape)) {
        refuse(absl::StrCat("the shape of its result is not known: ", NodeText(*node)));
      }
      cluster->outputs.emplace_back(node, output);
      cluster->output_shapes.push_back(std::move(shape));
    }
  }
  if (bytes > kMaxFunctionBytes) {
    refuse(absl::StrCat("it is large: ", bytes, " bytes, of ", kMaxFunctionBytes));
  }
  if (cluster->reason.empty() && !IsConvex(*cluster)) {
    cluster->reason = "the rest of the computation works between its ops";
  }
}

std::string SourceOf(const HostCluster& cluster) {
  for (const Node* node : cluster.nodes) {
    if (node->GetStackTrace() == nullptr) continue;
    const auto frames = node->GetStackTrace()->GetUserFrames(/*limit=*/-1);
    if (!frames.empty()) {
      return absl::StrCat(frames.back().file_name, ":", frames.back().line_number);
    }
  }
  return "";
}

absl::StatusOr<HostFunction> MakeHostFunction(const HostCluster& cluster,
                                              const FunctionLibraryDefinition& library) {
  Graph body(&library);
  absl::flat_hash_map<const Node*, Node*> copies;
  for (const std::vector<Node*>* nodes : {&cluster.constants, &cluster.nodes}) {
    for (Node* node : *nodes) {
      Node* copy = body.CopyNode(node);
      RemoveMarks(copy);
      copies[node] = copy;
    }
  }
  absl::flat_hash_map<std::pair<const Node*, int>, Node*> arguments;
  absl::Status status;
  const auto add = [&](const std::string& name, const char* op, DataType type, int index) {
    NodeDef definition;
    definition.set_name(body.NewName(name));
    definition.set_op(op);
    tensorflow::AddNodeAttr("T", type, &definition);
    tensorflow::AddNodeAttr("index", index, &definition);
    return body.AddNode(definition, &status);
  };
  for (size_t i = 0; i < cluster.inputs.size(); ++i) {
    const OutputTensor& input = cluster.inputs[i];
    Node* argument = add(absl::StrCat("argument_", i), "_Arg", input.node->output_type(input.index),
                         static_cast<int>(i));
    if (!status.ok()) return status;
    arguments[{input.node, input.index}] = argument;
  }
  for (const Node* node : cluster.nodes) {
    for (const Edge* edge : node->in_edges()) {
      const auto source = copies.find(edge->src());
      Node* target = copies[node];
      if (edge->IsControlEdge()) {
        if (cluster.members.contains(edge->src())) body.AddControlEdge(source->second, target);
      } else if (source != copies.end()) {
        body.AddEdge(source->second, edge->src_output(), target, edge->dst_input());
      } else {
        body.AddEdge(arguments.at({edge->src(), edge->src_output()}), 0, target, edge->dst_input());
      }
    }
  }
  for (size_t i = 0; i < cluster.outputs.size(); ++i) {
    const OutputTensor& output = cluster.outputs[i];
    Node* result = add(absl::StrCat("result_", i), "_Retval",
                       output.node->output_type(output.index), static_cast<int>(i));
    if (!status.ok()) return status;
    body.AddEdge(copies.at(output.node), output.index, result, 0);
  }
  FunctionDef definition;
  const auto is_kept = [](const Node* node) -> std::optional<std::string> {
    if (node->IsArg() || node->IsRetval() || !node->op_def().is_stateful()) return std::nullopt;
    return node->name();
  };
  status = tensorflow::GraphToFunctionDef(body, "host_call", is_kept, &definition);
  if (!status.ok()) return status;
  definition.mutable_signature()->set_is_stateful(cluster.has_effects);

  tensorflow::FunctionDefLibrary functions = library.ReachableDefinitions(definition).ToProto();
  std::string text;
  tensorflow::SerializeToStringDeterministic(definition, &text);
  HostFunction function;
  function.source = SourceOf(cluster);
  const auto fingerprint = tensorflow::Fingerprint128(absl::StrCat(text, function.source));
  function.name = absl::StrCat("host_call_", absl::Hex(fingerprint.low64, absl::kZeroPad16),
                               absl::Hex(fingerprint.high64, absl::kZeroPad16));
  definition.mutable_signature()->set_name(function.name);
  *functions.add_function() = std::move(definition);
  tensorflow::SerializeToStringDeterministic(functions, &function.library);
  return function;
}

absl::StatusOr<bool> TakeOutConstantOutputs(const HostCluster& cluster, Graph* graph) {
  bool any = false;
  for (size_t i = 0; i < cluster.outputs.size(); ++i) {
    const OutputTensor& output = cluster.outputs[i];
    if (cluster.output_shapes[i].num_elements() > kMaxCopiedConstantElements) continue;
    const tensorflow::ShapeRefiner refiner(graph->versions(), graph->op_registry());
    tensorflow::EvaluateConstantTensorRunner runner;
    runner.op_registry = graph->op_registry();
    runner.graph_def_version = graph->versions().producer();
    const auto value = tensorflow::EvaluateConstantTensor(
        *output.node, output.index, refiner,
        [](const Node&, int) { return std::optional<tensorflow::Tensor>(); }, runner);
    if (!value.ok() || !value->has_value()) continue;
    NodeDef definition;
    definition.set_name(graph->NewName(absl::StrCat(output.node->name(), "/value")));
    definition.set_op("Const");
    tensorflow::AddNodeAttr("dtype", (*value)->dtype(), &definition);
    tensorflow::AddNodeAttr("value", **value, &definition);
    if (!cluster.computation.empty()) {
      tensorflow::AddNodeAttr(kTpuReplicate, cluster.computation, &definition);
    }
    absl::Status status;
    Node* constant = graph->AddNode(definition, &status);
    if (!status.ok()) return status;
    const std::vector<const Edge*> edges(output.node->out_edges().begin(),
                                         output.node->out_edges().end());
    for (const Edge* edge : edges) {
      if (edge->src_output() != output.index || !IsUsedOutside(cluster, *edge)) continue;
      status = graph->UpdateEdge(constant, 0, edge->dst(), edge->dst_input());
      if (!status.ok()) return status;
    }
    any = true;
  }
  return any;
}

absl::StatusOr<Node*> ReplaceByCall(const HostCluster& cluster, const HostFunction& function,
                                    Graph* graph) {
  NodeDef definition;
  definition.set_name(graph->NewName(absl::StrCat("outside_compilation_", cluster.name)));
  definition.set_op(kBridgeHostComputeOp);
  tensorflow::DataTypeVector input_types, output_types;
  for (const OutputTensor& input : cluster.inputs) {
    definition.add_input(absl::StrCat(input.node->name(), ":", input.index));
    input_types.push_back(input.node->output_type(input.index));
  }
  for (const OutputTensor& output : cluster.outputs) {
    output_types.push_back(output.node->output_type(output.index));
  }
  tensorflow::AddNodeAttr("Tinputs", input_types, &definition);
  tensorflow::AddNodeAttr("Toutputs", output_types, &definition);
  tensorflow::AddNodeAttr("shapes", cluster.output_shapes, &definition);
  tensorflow::AddNodeAttr("ancestors", std::vector<std::string>(), &definition);
  tensorflow::AddNodeAttr("key", "", &definition);
  tensorflow::AddNodeAttr("shape_inference_graph", tensorflow::NameAttrList(), &definition);
  tensorflow::AddNodeAttr(kHostFunctionName, function.name, &definition);
  tensorflow::AddNodeAttr(kHostFunctionLibrary, function.library, &definition);
  tensorflow::AddNodeAttr(kHostFunctionSource, function.source, &definition);
  if (!cluster.computation.empty()) {
    tensorflow::AddNodeAttr(kTpuReplicate, cluster.computation, &definition);
  }
  absl::Status status;
  Node* call = graph->AddNode(definition, &status);
  if (!status.ok()) return status;
  for (Node* node : cluster.nodes) {
    if (call->GetStackTrace() == nullptr) call->SetStackTrace(node->GetStackTrace());
  }
  absl::flat_hash_map<std::pair<const Node*, int>, int> outputs;
  for (size_t i = 0; i < cluster.inputs.size(); ++i) {
    graph->AddEdge(cluster.inputs[i].node, cluster.inputs[i].index, call, static_cast<int>(i));
  }
  for (size_t i = 0; i < cluster.outputs.size(); ++i) {
    outputs[{cluster.outputs[i].node, cluster.outputs[i].index}] = static_cast<int>(i);
  }
  for (Node* node : cluster.nodes) {
    if (cluster.shared_constants.contains(node)) continue;
    for (const Edge* edge : node->in_edges()) {
      if (edge->IsControlEdge() && !edge->src()->IsSource() &&
          !cluster.members.contains(edge->src())) {
        graph->AddControlEdge(edge->src(), call);
      }
    }
    const std::vector<const Edge*> out_edges(node->out_edges().begin(), node->out_edges().end());
    for (const Edge* edge : out_edges) {
      if (edge->dst()->IsSink() || cluster.members.contains(edge->dst())) continue;
      Node* target = edge->dst();
      if (edge->IsControlEdge()) {
        graph->AddControlEdge(call, target);
        continue;
      }
      const int output = outputs.at({node, edge->src_output()});
      status = graph->UpdateEdge(call, output, target, edge->dst_input());
      if (!status.ok()) return status;
    }
  }
  for (Node* node : cluster.nodes) {
    if (cluster.shared_constants.contains(node)) {
      node->ClearAttr(kOutsideCompilation);
    } else {
      graph->RemoveNode(node);
    }
  }
  return call;
}

}  // namespace tf_tpu_ext
