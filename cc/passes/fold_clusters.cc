#include "cc/passes/fold_clusters.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "cc/ops/op_names.h"
#include "cc/ops/reachable_nodes.h"
#include "cc/passes/cluster_note.h"
#include "cc/passes/host_cluster.h"
#include "cc/passes/host_function.h"
#include "cc/passes/host_updates.h"
#include "cc/program/traced_options.h"
#include "tensorflow/core/common_runtime/function_body.h"
#include "tensorflow/core/common_runtime/function_def_utils.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/graph_to_functiondef.h"
#include "tensorflow/core/graph/algorithm.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/statusor.h"
#include "tsl/platform/fingerprint.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::AttrValue;
using tensorflow::FunctionBody;
using tensorflow::FunctionDef;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::Graph;
using tensorflow::NameAttrList;
using tensorflow::Node;

struct Body;

constexpr char kHostBarrierOp[] = "TpuExt>HostBarrier";

// A function attribute of a node, and the body of that function.
struct Callee {
  Node* node;
  std::string attribute;
  // The index in the attribute's list, or -1.
  int index;
  std::unique_ptr<Body> body;
};

struct Body {
  Graph* graph = nullptr;
  // Null for the graph that the pass was given.
  std::unique_ptr<FunctionBody> function;
  std::string name;
  // The computation that the whole body belongs to; empty if it is the host's.
  std::string computation;
  std::vector<HostCluster> clusters;
  tensorflow::GraphShapeInfo shapes;
  std::vector<Callee> callees;
  std::map<std::string, std::string> replaced;
  // Whether a cluster of the body, or of what it calls, stays in the host graph, and the name of
  // the nodes that the body then gets.
  bool stays = false;
  std::vector<std::string> added;
};

// Returns an empty string if the node has no such attribute.
std::string TextAttribute(const Node& node, const char* name) {
  const AttrValue* value = node.attrs().Find(name);
  return value == nullptr ? "" : value->s();
}

class Folder {
 public:
  Folder(FunctionLibraryDefinition* library, bool enabled, const std::set<ClusterPlace>& noted)
      : library_(library), enabled_(enabled), noted_(noted) {}

  // Finds the clusters of the body and of what it calls. All of them are read before any is folded:
  // if a cluster with effects stays, so do the others with effects in its computation, wherever
  // they are.
  absl::Status Read(Body* body) {
    TF_RETURN_IF_ERROR(ReadMetadata(*body->graph));
    std::map<std::pair<std::string, std::string>, HostCluster> clusters;
    for (Node* node : body->graph->op_nodes()) {
      const std::string owner = TextAttribute(*node, kTpuReplicate);
      const std::string computation = owner.empty() ? body->computation : owner;
      if (!computation.empty() && node->attrs().Find(kOutsideCompilation) != nullptr) {
        const std::string name = TextAttribute(*node, kOutsideCompilation);
        HostCluster& cluster = clusters[{computation, name}];
        cluster.name = name;
        if (body->computation.empty()) cluster.computation = computation;
        cluster.nodes.push_back(node);
        cluster.members.insert(node);
        if (node->attrs().Find("_xla_map_outside_compilation") != nullptr) {
          cluster.reason = "every core of the replica calls the host for itself";
        }
        continue;
      }
      TF_RETURN_IF_ERROR(ReadCallees(node, computation, body));
    }
    if (clusters.empty()) return absl::OkStatus();
    TF_RETURN_IF_ERROR(InferShapes(body));
    for (auto& [key, cluster] : clusters) {
      std::sort(cluster.nodes.begin(), cluster.nodes.end(),
                [](const Node* a, const Node* b) { return a->id() < b->id(); });
      cluster.owner = key.first;
      if (!IsEnabled(cluster.owner))
        cluster.reason = "the option fold_host_calls=False keeps it out";
      if (split_.contains(cluster.owner)) cluster.reason = "its replica has several cores";
      Examine(body->shapes, *library_, &cluster);
      if (!cluster.reason.empty() && cluster.has_effects) {
        stays_.emplace(cluster.owner, cluster.name);
      }
      body->clusters.push_back(std::move(cluster));
    }
    return absl::OkStatus();
  }

  // Folds what can be folded, innermost functions first; returns whether the body has changed.
  absl::StatusOr<bool> Fold(Body* body, std::vector<ClusterReport>* reports) {
    bool changed = false;
    for (Callee& callee : body->callees) {
      TF_ASSIGN_OR_RETURN(const bool folded, Fold(callee.body.get(), reports));
      body->stays = body->stays || callee.body->stays;
      if (!folded) continue;
      TF_RETURN_IF_ERROR(Redefine(callee));
      changed = true;
    }
    for (HostCluster& cluster : body->clusters) {
      ClusterReport report;
      report.cluster = cluster.name;
      report.place = {body->name, cluster.name};
      report.source = SourceOf(cluster);
      TF_ASSIGN_OR_RETURN(const bool folded, FoldCluster(body, &cluster, &report));
      if (!folded) {
        body->stays = true;
        TF_RETURN_IF_ERROR(KeepUpdatesWhole(&cluster, body->graph, library_));
        report.counted_as = Mark(cluster, report);
        // Replicas of several cores call no functions.
        if (noted_.count(report.place) > 0 && !split_.contains(cluster.owner)) {
          report.noted_as = absl::StrCat(report.counted_as, "_note");
          TF_ASSIGN_OR_RETURN(const Node* const note,
                              AddNote(cluster, report.noted_as, body->graph));
          body->added.push_back(note->name());
        }
      }
      // The cluster was either folded or marked.
      changed = true;
      reports->push_back(std::move(report));
    }
    if (body->stays && body->function != nullptr && !body->computation.empty()) {
      TF_RETURN_IF_ERROR(AddBarrier(body));
      changed = true;
    }
    if (changed) tensorflow::FixupSourceAndSinkEdges(body->graph);
    return changed;
  }

 private:
  // Learns what options the computations that begin in the graph were traced with. Replicas with
  // several cores keep their clusters in the host graph.
  absl::Status ReadMetadata(const Graph& graph) {
    for (const Node* node : graph.op_nodes()) {
      if (node->type_string() != "TPUReplicateMetadata") continue;
      const std::string computation = TextAttribute(*node, kTpuReplicate);
      int cores = 1;
      if (tensorflow::GetNodeAttr(node->attrs(), "num_cores_per_replica", &cores).ok() &&
          cores > 1) {
        split_.insert(computation);
      }
      ProgramOptions options;
      options.fold_host_calls = enabled_;
      TF_RETURN_IF_ERROR(ApplyTracedOptions(TextAttribute(*node, kCompileOptions), &options));
      enabled_in_[computation] = options.fold_host_calls;
    }
    return absl::OkStatus();
  }

  bool IsEnabled(const std::string& computation) const {
    const auto found = enabled_in_.find(computation);
    return found == enabled_in_.end() ? enabled_ : found->second;
  }

  absl::Status ReadCallees(Node* node, const std::string& computation, Body* body) {
    for (const auto& [attribute, value] : node->attrs()) {
      if (value.has_func()) {
        TF_RETURN_IF_ERROR(ReadCallee(node, attribute, -1, value.func(), computation, body));
      }
      for (int i = 0; i < value.list().func_size(); ++i) {
        TF_RETURN_IF_ERROR(ReadCallee(node, attribute, i, value.list().func(i), computation, body));
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadCallee(Node* node, const std::string& attribute, int index,
                          const NameAttrList& function, const std::string& computation,
                          Body* body) {
    if (!HoldsClusters(function.name()) || !open_.insert(function.name()).second) {
      return absl::OkStatus();
    }
    auto callee = std::make_unique<Body>();
    callee->name = function.name();
    callee->computation = computation;
    absl::Status status = tensorflow::FunctionDefToBodyHelper(
        library_->FindRecord(function.name()), tensorflow::AttrSlice(&function.attr()), library_,
        &callee->function);
    if (status.ok()) {
      callee->graph = callee->function->graph;
      status = Read(callee.get());
    }
    open_.erase(function.name());
    body->callees.push_back({node, attribute, index, std::move(callee)});
    return status;
  }

  // Whether the function, or one that it calls, contains marked ops.
  bool HoldsClusters(const std::string& name) {
    const auto [known, fresh] = holds_.emplace(name, false);
    if (fresh) known->second = HoldsOutsideCompilation(name, *library_);
    return known->second;
  }

  absl::Status InferShapes(Body* body) const {
    std::map<int, tensorflow::InferredShape> arguments;
    for (const Node* node : body->graph->op_nodes()) {
      if (!node->IsArg()) continue;
      int index = 0;
      std::vector<tensorflow::PartialTensorShape> shapes;
      if (tensorflow::GetNodeAttr(node->attrs(), "index", &index).ok() &&
          tensorflow::GetNodeAttr(node->attrs(), "_output_shapes", &shapes).ok() &&
          shapes.size() == 1) {
        arguments[index].shape = shapes[0];
      }
    }
    return tensorflow::InferShapes(body->graph, arguments, library_, &body->shapes);
  }

  absl::StatusOr<bool> FoldCluster(Body* body, HostCluster* cluster, ClusterReport* report) {
    report->reason = cluster->reason;
    if (report->reason.empty() && cluster->has_effects) {
      if (auto other = stays_.find(cluster->owner); other != stays_.end()) {
        report->reason = absl::StrCat("its effects keep their order with those of cluster ",
                                      other->second, ", which stays");
      }
    }
    if (!report->reason.empty()) return false;
    // Clusters before it have become calls in the meantime.
    Examine(body->shapes, *library_, cluster);
    report->reason = cluster->reason;
    if (!report->reason.empty()) return false;
    // This comes first, so that the function does not output what is already known.
    TF_ASSIGN_OR_RETURN(const bool changed, TakeOutConstantOutputs(*cluster, body->graph));
    if (changed) Examine(body->shapes, *library_, cluster);
    TF_ASSIGN_OR_RETURN(const HostFunction function, MakeHostFunction(*cluster, *library_));
    std::vector<std::string> nodes;
    for (const Node* node : cluster->nodes) nodes.push_back(node->name());
    TF_ASSIGN_OR_RETURN(const Node* const call, ReplaceByCall(*cluster, function, body->graph));
    for (const std::string& name : nodes) body->replaced[name] = call->name();
    report->counted_as = function.name;
    return true;
  }

  // Marks the ops of a cluster that stays with the cluster's identity, as if they came from an
  // inlined function. The mark is the same whenever the same program is traced, since it becomes
  // part of what is compiled.
  static std::string Mark(const HostCluster& cluster, const ClusterReport& report) {
    std::string identity = absl::StrCat(report.cluster, "\n", report.reason, "\n", report.source);
    for (const Node* node : cluster.nodes) absl::StrAppend(&identity, "\n", node->name());
    const std::string mark =
        absl::StrCat(kClusterMark, absl::Hex(tsl::Fingerprint64(identity), absl::kZeroPad16));
    for (Node* node : cluster.nodes) {
      const auto& known = node->def().experimental_debug_info();
      std::vector<std::string> names(known.original_node_names().begin(),
                                     known.original_node_names().end());
      std::vector<std::string> functions(known.original_func_names().begin(),
                                         known.original_func_names().end());
      functions.resize(names.size());
      names.push_back(node->name());
      functions.push_back(mark);
      node->set_original_node_names(names);
      node->set_original_func_names(functions);
    }
    return mark;
  }

  // The bridge loses ops of unknown effects, such as a branch with a Python function in it, if
  // transfers follow them in the same loop or branch of the host graph. An op of unknown effects
  // after all of these keeps them.
  static absl::Status AddBarrier(Body* body) {
    tensorflow::NodeDef definition;
    definition.set_name(body->graph->NewName("outside_compilation_barrier"));
    definition.set_op(kHostBarrierOp);
    tensorflow::AddNodeAttr(kOutsideCompilation, "barrier", &definition);
    std::vector<Node*> before;
    for (Node* node : body->graph->op_nodes()) {
      if (node->attrs().Find(kOutsideCompilation) != nullptr) {
        before.push_back(node);
        if (const AttrValue* owner = node->attrs().Find(kTpuReplicate); owner != nullptr) {
          (*definition.mutable_attr())[kTpuReplicate] = *owner;
        }
      }
    }
    for (const Callee& callee : body->callees) before.push_back(callee.node);
    TF_ASSIGN_OR_RETURN(Node* const barrier, body->graph->AddNode(std::move(definition)));
    for (Node* node : before) body->graph->AddControlEdge(node, barrier);
    body->added.push_back(barrier->name());
    return absl::OkStatus();
  }

  // Gives the callee's new body a name of its own, and makes the node call it: other nodes may call
  // the function as part of another computation, or of none.
  absl::Status Redefine(const Callee& callee) {
    const FunctionDef* old = library_->Find(callee.body->name);
    const std::string name =
        library_->UniqueFunctionName(absl::StrCat(callee.body->name, "_folded_"));
    std::map<std::string, std::string> kept;
    for (const auto& [result, node] : old->control_ret()) {
      const auto replaced = callee.body->replaced.find(node);
      kept[replaced == callee.body->replaced.end() ? node : replaced->second] = result;
    }
    for (const std::string& added : callee.body->added) kept[added] = added;
    FunctionDef definition;
    TF_RETURN_IF_ERROR(tensorflow::GraphToFunctionDef(
        *callee.body->graph, name,
        [&kept](const Node* node) -> std::optional<std::string> {
          const auto found = kept.find(node->name());
          if (found == kept.end()) return std::nullopt;
          return found->second;
        },
        &definition));
    *definition.mutable_attr() = old->attr();
    *definition.mutable_arg_attr() = old->arg_attr();
    *definition.mutable_resource_arg_unique_id() = old->resource_arg_unique_id();
    definition.mutable_signature()->set_is_stateful(true);
    tensorflow::StackTracesMap traces;
    for (const Node* node : callee.body->graph->op_nodes()) {
      if (node->GetStackTrace() != nullptr) traces[node->name()] = node->GetStackTrace();
    }
    TF_RETURN_IF_ERROR(library_->AddFunctionDef(definition, traces));
    AttrValue value = *callee.node->attrs().Find(callee.attribute);
    NameAttrList* function =
        callee.index < 0 ? value.mutable_func() : value.mutable_list()->mutable_func(callee.index);
    function->set_name(name);
    callee.node->ClearAttr(callee.attribute);
    callee.node->AddAttr(callee.attribute, value);
    return absl::OkStatus();
  }

  FunctionLibraryDefinition* const library_;
  const bool enabled_;
  const std::set<ClusterPlace>& noted_;
  // For each computation, whether its clusters are folded.
  absl::flat_hash_map<std::string, bool> enabled_in_;
  // Computations whose replicas have several cores.
  absl::flat_hash_set<std::string> split_;
  // For each computation, a cluster with effects that cannot be folded.
  absl::flat_hash_map<std::string, std::string> stays_;
  // Functions that are being read: a function that calls itself is left as it is.
  absl::flat_hash_set<std::string> open_;
  // What HoldsClusters has found.
  absl::flat_hash_map<std::string, bool> holds_;
};

}  // namespace

absl::StatusOr<FoldedGraph> FoldClusters(Graph* graph, FunctionLibraryDefinition* library,
                                         bool enabled, const std::set<ClusterPlace>& noted) {
  FoldedGraph folded;
  Body body;
  body.graph = graph;
  Folder folder(library, enabled, noted);
  TF_RETURN_IF_ERROR(folder.Read(&body));
  TF_RETURN_IF_ERROR(folder.Fold(&body, &folded.clusters).status());
  folded.replaced = std::move(body.replaced);
  return folded;
}

}  // namespace tf_tpu_ext
