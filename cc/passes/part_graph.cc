#include "cc/passes/part_graph.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/graph/algorithm.h"
#include "tensorflow/core/graph/tensor_id.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Edge;
using tensorflow::Graph;
using tensorflow::GraphDef;
using tensorflow::Node;
using tensorflow::NodeDef;

constexpr char kSinkPrefix[] = "tpu_ext_part_sink_";
constexpr char kColocation[] = "_class";
constexpr char kColocationPrefix[] = "loc:@";

// Numbers names within the part; Graph::NewName counts those of the whole graph.
class Names {
 public:
  std::string InPart(const std::string& name) {
    const size_t slash = name.rfind("/_");
    if (slash == std::string::npos || slash + 2 == name.size() ||
        !std::all_of(name.begin() + static_cast<int64_t>(slash) + 2, name.end(),
                     absl::ascii_isdigit)) {
      return name;
    }
    const std::string base = name.substr(0, slash);
    return absl::StrCat(base, "/_part", numbered_[base]++);
  }

 private:
  std::map<std::string, int> numbered_;
};

NodeDef DefineSink(const std::string& name, const Node& node, int output) {
  NodeDef sink;
  sink.set_name(name);
  sink.set_op(output == Graph::kControlSlot ? "NoOp" : "Identity");
  if (output != Graph::kControlSlot) {
    tensorflow::AddNodeAttr("T", node.output_type(output), &sink);
  }
  return sink;
}

std::vector<Node*> InOrderOfGraph(const ComputationPart& part) {
  std::vector<Node*> nodes = part.computations;
  nodes.insert(nodes.end(), part.ancestors.begin(), part.ancestors.end());
  absl::c_sort(nodes, [](const Node* a, const Node* b) { return a->id() < b->id(); });
  return nodes;
}

// Puts a part's nodes into the whole graph.
class Splicer {
 public:
  Splicer(const PartGraph& part, const GraphDef& made, Graph* whole)
      : part_(part), made_(made), whole_(*whole) {
    for (const Node* node : whole->nodes()) taken_.insert(node->name());
  }

  absl::Status Splice() {
    for (const NodeDef& definition : made_.node()) {
      if (absl::StartsWith(definition.name(), kSinkPrefix)) {
        sinks_[definition.name()] = &definition;
      } else {
        renamed_[definition.name()] = FreeName(definition.name());
      }
    }
    TF_RETURN_IF_ERROR(AddNodes());
    for (const auto& [definition, node] : added_) {
      TF_RETURN_IF_ERROR(Connect(*definition, node));
    }
    for (const Leaving& leaving : part_.leaving) TF_RETURN_IF_ERROR(Reconnect(leaving));
    return absl::OkStatus();
  }

 private:
  std::string FreeName(const std::string& name) {
    std::string free = name;
    while (!taken_.insert(free).second) free = whole_.NewName(name);
    return free;
  }

  absl::Status AddNodes() {
    for (const NodeDef& definition : made_.node()) {
      if (sinks_.contains(definition.name())) continue;
      NodeDef copy = definition;
      copy.set_name(renamed_.at(definition.name()));
      copy.clear_input();
      RenameColocation(&copy);
      TF_ASSIGN_OR_RETURN(Node* const node, whole_.AddNode(std::move(copy)));
      nodes_[definition.name()] = node;
      added_.emplace_back(&definition, node);
    }
    return absl::OkStatus();
  }

  void RenameColocation(NodeDef* definition) const {
    const auto found = definition->mutable_attr()->find(kColocation);
    if (found == definition->mutable_attr()->end()) return;
    for (std::string& with : *found->second.mutable_list()->mutable_s()) {
      absl::string_view name = with;
      if (!absl::ConsumePrefix(&name, kColocationPrefix)) continue;
      if (const auto now = renamed_.find(name); now != renamed_.end()) {
        with = absl::StrCat(kColocationPrefix, now->second);
      } else if (const auto node = part_.ancestors.find(name); node != part_.ancestors.end()) {
        with = absl::StrCat(kColocationPrefix, node->second->name());
      }
    }
  }

  absl::StatusOr<Node*> Find(absl::string_view name) const {
    if (const auto node = nodes_.find(name); node != nodes_.end()) return node->second;
    if (const auto node = part_.ancestors.find(name); node != part_.ancestors.end()) {
      return node->second;
    }
    return absl::InternalError(
        absl::StrCat("The bridge has made an op that takes ", name, ", and no such op."));
  }

  absl::Status Connect(const NodeDef& definition, Node* node) {
    for (int i = 0; i < definition.input_size(); ++i) {
      const tensorflow::TensorId input = tensorflow::ParseTensorName(definition.input(i));
      TF_ASSIGN_OR_RETURN(Node* const source, Find(input.node()));
      const bool follows = input.index() == Graph::kControlSlot;
      whole_.AddEdge(source, input.index(), node, follows ? Graph::kControlSlot : i);
    }
    return absl::OkStatus();
  }

  absl::Status Reconnect(const Leaving& leaving) {
    const auto sink = sinks_.find(leaving.sink);
    if (sink == sinks_.end()) {
      return absl::InternalError(absl::StrCat("The bridge has lost what ",
                                              leaving.takers.front().first->name(), " takes."));
    }
    for (const std::string& input : sink->second->input()) {
      const tensorflow::TensorId from = tensorflow::ParseTensorName(input);
      TF_ASSIGN_OR_RETURN(Node* const source, Find(from.node()));
      for (const auto& [taker, slot] : leaving.takers) {
        if (from.index() == Graph::kControlSlot) {
          whole_.AddControlEdge(source, taker);
        } else {
          whole_.AddEdge(source, from.index(), taker, slot);
        }
      }
    }
    return absl::OkStatus();
  }

  const PartGraph& part_;
  const GraphDef& made_;
  Graph& whole_;
  absl::flat_hash_set<std::string> taken_;
  absl::flat_hash_map<std::string, const NodeDef*> sinks_;
  absl::flat_hash_map<std::string, std::string> renamed_;
  absl::flat_hash_map<std::string, Node*> nodes_;
  std::vector<std::pair<const NodeDef*, Node*>> added_;
};

}  // namespace

absl::StatusOr<PartGraph> MakePartGraph(const ComputationPart& part, const Graph& whole) {
  PartGraph result;
  result.graph = std::make_unique<Graph>(whole.flib_def());
  Names names;
  absl::flat_hash_map<const Node*, Node*> copies;
  const absl::flat_hash_set<const Node*> own(part.computations.begin(), part.computations.end());
  const std::vector<Node*> nodes = InOrderOfGraph(part);
  for (Node* node : nodes) {
    Node* const copy = result.graph->CopyNode(node);
    const std::string name = names.InPart(node->name());
    if (name != node->name()) copy->set_name(name);
    copies[node] = copy;
    if (!own.contains(node)) result.ancestors[name] = node;
  }
  for (const Node* node : nodes) {
    for (const Edge* edge : node->in_edges()) {
      const auto source = copies.find(edge->src());
      if (source == copies.end()) continue;
      result.graph->AddEdge(source->second, edge->src_output(), copies.at(node), edge->dst_input());
    }
  }
  // By node and output.
  for (const Node* node : part.computations) {
    std::map<int, Leaving> leaving;
    for (const Edge* edge : node->out_edges()) {
      // Ancestors that lie between two computations take it too.
      if (!edge->dst()->IsOp() || own.contains(edge->dst())) continue;
      leaving[edge->src_output()].takers.emplace_back(edge->dst(), edge->dst_input());
    }
    for (auto& [output, taken] : leaving) {
      taken.sink = absl::StrCat(kSinkPrefix, result.leaving.size());
      TF_ASSIGN_OR_RETURN(Node* const sink,
                          result.graph->AddNode(DefineSink(taken.sink, *node, output)));
      const bool follows = output == Graph::kControlSlot;
      result.graph->AddEdge(copies.at(node), output, sink, follows ? Graph::kControlSlot : 0);
      result.leaving.push_back(std::move(taken));
    }
  }
  tensorflow::FixupSourceAndSinkEdges(result.graph.get());
  return result;
}

std::optional<GraphDef> MadeByBridge(const PartGraph& part, const Graph& bridged) {
  GraphDef all;
  bridged.ToGraphDef(&all);
  absl::flat_hash_map<std::string, const NodeDef*> by_name;
  std::vector<const NodeDef*> todo;
  std::set<std::string> wanted;
  for (const NodeDef& node : all.node()) {
    by_name[node.name()] = &node;
    if (part.ancestors.contains(node.name())) continue;
    wanted.insert(node.name());
    todo.push_back(&node);
  }
  while (!todo.empty()) {
    const NodeDef* const node = todo.back();
    todo.pop_back();
    for (const std::string& input : node->input()) {
      const std::string name(tensorflow::ParseTensorName(input).node());
      const auto ancestor = part.ancestors.find(name);
      const auto source = by_name.find(name);
      if (ancestor == part.ancestors.end() || source == by_name.end()) continue;
      // For example, a constant that the bridge has computed.
      if (source->second->op() == ancestor->second->type_string()) continue;
      if (ancestor->second->op_def().is_stateful()) return std::nullopt;
      if (wanted.insert(name).second) todo.push_back(source->second);
    }
  }
  GraphDef made;
  for (const NodeDef& node : all.node()) {
    if (wanted.count(node.name()) > 0) *made.add_node() = node;
  }
  return made;
}

absl::Status ReplaceComputations(const ComputationPart& part, const PartGraph& part_graph,
                                 const GraphDef& made, Graph* whole) {
  for (Node* node : part.computations) whole->RemoveNode(node);
  TF_RETURN_IF_ERROR(Splicer(part_graph, made, whole).Splice());
  tensorflow::FixupSourceAndSinkEdges(whole);
  return absl::OkStatus();
}

}  // namespace tf_tpu_ext
