#include "cc/passes/host_function.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "cc/ops/op_names.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/graph_to_functiondef.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/lib/strings/proto_serialization.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/fingerprint.h"
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

void RemoveMarks(Node* node) {
  node->set_requested_device("");
  for (const char* name : {kOutsideCompilation, kTpuReplicate, "_class"}) node->ClearAttr(name);
}

// The graph of a function's body.
class BodyBuilder {
 public:
  BodyBuilder(const HostCluster& cluster, const FunctionLibraryDefinition& library)
      : cluster_(cluster), body_(&library) {}

  absl::StatusOr<FunctionDef> Build() {
    for (const std::vector<Node*>* nodes : {&cluster_.constants, &cluster_.nodes}) {
      for (Node* node : *nodes) {
        Node* copy = body_.CopyNode(node);
        RemoveMarks(copy);
        copies_[node] = copy;
      }
    }
    TF_RETURN_IF_ERROR(AddArguments());
    for (const Node* node : cluster_.nodes) ConnectInputs(*node);
    TF_RETURN_IF_ERROR(AddResults());
    FunctionDef definition;
    // Ops with effects run even if no result depends on them.
    const auto is_kept = [](const Node* node) -> std::optional<std::string> {
      if (node->IsArg() || node->IsRetval() || !node->op_def().is_stateful()) return std::nullopt;
      return node->name();
    };
    TF_RETURN_IF_ERROR(tensorflow::GraphToFunctionDef(body_, "host_call", is_kept, &definition));
    definition.mutable_signature()->set_is_stateful(cluster_.has_effects);
    return definition;
  }

 private:
  absl::StatusOr<Node*> AddBoundary(const std::string& name, const char* op, DataType type,
                                    int index) {
    NodeDef definition;
    definition.set_name(body_.NewName(name));
    definition.set_op(op);
    tensorflow::AddNodeAttr("T", type, &definition);
    tensorflow::AddNodeAttr("index", index, &definition);
    return body_.AddNode(std::move(definition));
  }

  absl::Status AddArguments() {
    for (size_t i = 0; i < cluster_.inputs.size(); ++i) {
      const OutputTensor& input = cluster_.inputs[i];
      TF_ASSIGN_OR_RETURN(Node* const argument,
                          AddBoundary(absl::StrCat("argument_", i), "_Arg",
                                      input.node->output_type(input.index), static_cast<int>(i)));
      arguments_[{input.node, input.index}] = argument;
    }
    return absl::OkStatus();
  }

  absl::Status AddResults() {
    for (size_t i = 0; i < cluster_.outputs.size(); ++i) {
      const OutputTensor& output = cluster_.outputs[i];
      TF_ASSIGN_OR_RETURN(Node* const result,
                          AddBoundary(absl::StrCat("result_", i), "_Retval",
                                      output.node->output_type(output.index), static_cast<int>(i)));
      body_.AddEdge(copies_.at(output.node), output.index, result, 0);
    }
    return absl::OkStatus();
  }

  void ConnectInputs(const Node& node) {
    Node* const target = copies_.at(&node);
    for (const Edge* edge : node.in_edges()) {
      const auto source = copies_.find(edge->src());
      if (edge->IsControlEdge()) {
        // What precedes the cluster precedes its call.
        if (cluster_.members.contains(edge->src())) body_.AddControlEdge(source->second, target);
      } else if (source != copies_.end()) {
        body_.AddEdge(source->second, edge->src_output(), target, edge->dst_input());
      } else {
        Node* const argument = arguments_.at({edge->src(), edge->src_output()});
        body_.AddEdge(argument, 0, target, edge->dst_input());
      }
    }
  }

  const HostCluster& cluster_;
  Graph body_;
  absl::flat_hash_map<const Node*, Node*> copies_;
  absl::flat_hash_map<std::pair<const Node*, int>, Node*> arguments_;
};

NodeDef DefineCall(const HostCluster& cluster, const HostFunction& function, std::string name) {
  NodeDef definition;
  definition.set_name(std::move(name));
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
  tensorflow::AddNodeAttr(kHostFunctionCluster, cluster.name, &definition);
  if (!cluster.computation.empty()) {
    tensorflow::AddNodeAttr(kTpuReplicate, cluster.computation, &definition);
  }
  return definition;
}

void ConnectCallInputs(const HostCluster& cluster, Node* call, Graph* graph) {
  for (size_t i = 0; i < cluster.inputs.size(); ++i) {
    graph->AddEdge(cluster.inputs[i].node, cluster.inputs[i].index, call, static_cast<int>(i));
  }
  for (Node* node : cluster.nodes) {
    if (cluster.shared_constants.contains(node)) continue;
    for (const Edge* edge : node->in_edges()) {
      if (edge->IsControlEdge() && !edge->src()->IsSource() &&
          !cluster.members.contains(edge->src())) {
        graph->AddControlEdge(edge->src(), call);
      }
    }
  }
}

absl::Status ConnectCallOutputs(const HostCluster& cluster, Node* call, Graph* graph) {
  absl::flat_hash_map<std::pair<const Node*, int>, int> outputs;
  for (size_t i = 0; i < cluster.outputs.size(); ++i) {
    outputs[{cluster.outputs[i].node, cluster.outputs[i].index}] = static_cast<int>(i);
  }
  for (Node* node : cluster.nodes) {
    if (cluster.shared_constants.contains(node)) continue;
    // A copy, because the loop changes the edges.
    const std::vector<const Edge*> edges(node->out_edges().begin(), node->out_edges().end());
    for (const Edge* edge : edges) {
      Node* const target = edge->dst();
      if (target->IsSink() || cluster.members.contains(target)) continue;
      if (edge->IsControlEdge()) {
        graph->AddControlEdge(call, target);
        continue;
      }
      const int output = outputs.at({node, edge->src_output()});
      TF_RETURN_IF_ERROR(graph->UpdateEdge(call, output, target, edge->dst_input()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<HostFunction> MakeHostFunction(const HostCluster& cluster,
                                              const FunctionLibraryDefinition& library) {
  TF_ASSIGN_OR_RETURN(FunctionDef definition, BodyBuilder(cluster, library).Build());
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

absl::StatusOr<Node*> ReplaceByCall(const HostCluster& cluster, const HostFunction& function,
                                    Graph* graph) {
  std::string name = graph->NewName(absl::StrCat("outside_compilation_", cluster.name));
  TF_ASSIGN_OR_RETURN(Node* const call,
                      graph->AddNode(DefineCall(cluster, function, std::move(name))));
  for (Node* node : cluster.nodes) {
    if (call->GetStackTrace() == nullptr) call->SetStackTrace(node->GetStackTrace());
  }
  ConnectCallInputs(cluster, call, graph);
  TF_RETURN_IF_ERROR(ConnectCallOutputs(cluster, call, graph));
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
