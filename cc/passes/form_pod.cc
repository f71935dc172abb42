// If TensorFlow's cluster has several TPU workers, they form a pod. The bridge compiles a program
// once, on the first of them; this pass makes each host compile its own copy, and tells all hosts
// which hosts there are. It also makes every host take part when the TPU system starts and ends.
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cc/device/virtual_device.h"
#include "cc/ops/execute_nodes.h"
#include "cc/ops/op_names.h"
#include "cc/passes/pod_jobs.h"
#include "cc/pods/pod.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/graph/algorithm.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/statusor.h"
#include "tensorflow/core/protobuf/tpu/compile_metadata.pb.h"
#include "tensorflow/core/util/device_name_utils.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::DeviceNameUtils;
using tensorflow::Edge;
using tensorflow::Graph;
using tensorflow::Node;
using ParsedName = DeviceNameUtils::ParsedName;

// After TensorFlow's own passes of the phase, and after our pass that compares what runs where.
constexpr int kFormPodPhase = 1000;

class PodFormer {
 public:
  PodFormer(std::map<std::string, PodJob> jobs, Graph* graph)
      : jobs_(std::move(jobs)), graph_(*graph) {}

  absl::Status Run() {
    std::vector<Node*> systems, compiles;
    for (Node* node : graph_.op_nodes()) {
      // If there is one, another host has formed the pod, and this is its part of the graph.
      if (HasPod(node->attrs())) continue;
      const std::string& type = node->type_string();
      TF_RETURN_IF_ERROR(CheckEmbedding(*node));
      if (type == "ConfigureDistributedTPU" || type == "ShutdownDistributedTPU") {
        systems.push_back(node);
      }
      if (type == "_TPUCompileMlir") compiles.push_back(node);
      if (IsHostTransfer(type)) NoteTask(node);
    }
    for (Node* node : systems) TF_RETURN_IF_ERROR(OnEachHost(node));
    for (Node* node : compiles) TF_RETURN_IF_ERROR(CompileOnEachHost(node));
    // Copies without inputs start with the graph.
    if (copied_) tensorflow::FixupSourceAndSinkEdges(&graph_);
    return absl::OkStatus();
  }

 private:
  // The job and host that the node is placed on; null if it is not part of a pod.
  absl::StatusOr<std::pair<const PodJob*, Host>> PlaceOf(const Node& node) const {
    ParsedName name;
    DeviceNameUtils::ParseFullName(node.requested_device(), &name);
    auto found = name.has_job ? jobs_.find(name.job) : jobs_.end();
    if (!name.has_job && jobs_.size() == 1) found = jobs_.begin();
    if (found == jobs_.end()) return std::make_pair(nullptr, Host(0));
    const PodJob& job = found->second;
    TF_RETURN_IF_ERROR(job.CheckCores());
    if (!name.has_task) return std::make_pair(&job, Host(0));
    const std::optional<Host> host = job.HostOf(name);
    if (!host.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat(node.name(), " is placed on ", node.requested_device(),
                       ", which is no TPU worker. The cluster has ", job.names.size(),
                       " workers, such as ", NameOfHost(job.pod.members[Host(0)]), "."));
    }
    return std::make_pair(&job, *host);
  }

  absl::StatusOr<Node*> CopyFor(const Node& node, const PodJob& job, Host host,
                                const std::string& device_type) {
    tensorflow::NodeDef definition = node.def();
    definition.set_name(graph_.NewName(absl::StrCat(node.name(), "/host", host)));
    definition.mutable_attr()->erase(tensorflow::kColocationAttrName);
    ParsedName device = job.names[host];
    device.type = device_type;
    definition.set_device(DeviceNameUtils::ParsedNameToString(device));
    TF_ASSIGN_OR_RETURN(Node* const copy, graph_.AddNode(std::move(definition)));
    for (const Edge* edge : node.in_edges()) {
      if (edge->src()->IsSource()) continue;
      graph_.AddEdge(edge->src(), edge->src_output(), copy, edge->dst_input());
    }
    AddPod(job.For(host), copy);
    copied_ = true;
    return copy;
  }

  // The embedding engine belongs to a single host.
  absl::Status CheckEmbedding(const Node& node) const {
    std::string config;
    const bool configures =
        node.type_string() == "ConfigureTPUEmbedding" ||
        (node.type_string() == "ConfigureDistributedTPU" &&
         tensorflow::GetNodeAttr(node.attrs(), "embedding_config", &config).ok() &&
         !config.empty());
    if (!configures) return absl::OkStatus();
    TF_ASSIGN_OR_RETURN(const auto place, PlaceOf(node));
    if (place.first == nullptr) return absl::OkStatus();
    return absl::UnimplementedError(absl::StrCat(
        "TPU embeddings run on the cores of one worker; this TPU has ", place.first->names.size(),
        ". Connect to one worker with all the cores: tf-tpu worker --cores=",
        place.first->names.size() * place.first->pod.shape.cores_per_host));
  }

  // The first host answers once the others are ready.
  absl::Status OnEachHost(Node* node) {
    TF_ASSIGN_OR_RETURN(const auto place, PlaceOf(*node));
    const auto& [job, own] = place;
    if (job == nullptr) return absl::OkStatus();
    for (Host host : job->names.numbers()) {
      if (host == own) continue;
      TF_ASSIGN_OR_RETURN(Node* const copy, CopyFor(*node, *job, host, kTpuSystemDeviceType));
      graph_.AddControlEdge(copy, node);
    }
    AddPod(job->For(own), node);
    return absl::OkStatus();
  }

  absl::Status CompileOnEachHost(Node* compile) {
    TF_ASSIGN_OR_RETURN(const auto place, PlaceOf(*compile));
    const auto& [job, own] = place;
    if (job == nullptr) return absl::OkStatus();
    std::vector<Node*> users;
    for (const Edge* edge : compile->out_edges()) {
      // The first output says how the compilation ended; the others are keys.
      if (edge->src_output() > 0) users.push_back(edge->dst());
    }
    for (Host host : HostsOf(*compile, users, *job)) {
      if (host == own) continue;
      TF_ASSIGN_OR_RETURN(Node* const copy, CopyFor(*compile, *job, host, tensorflow::DEVICE_CPU));
      copy->AddAttr(kCopyForHost, true);
      for (Node* user : users) {
        if (MayUseKeyOn(*user, *job, host)) graph_.AddControlEdge(copy, user);
      }
    }
    AddPod(job->For(own), compile);
    return absl::OkStatus();
  }

  // The placer may move an op to where a resource is. A transfer there would be another replica's.
  static void NoteTask(Node* node) {
    ParsedName name;
    if (node->attrs().Find(kTransferTask) == nullptr &&
        DeviceNameUtils::ParseFullName(node->requested_device(), &name) && name.has_task) {
      node->AddAttr(kTransferTask, name.task);
    }
  }

  static std::optional<Host> HostOf(const Node& node, const PodJob& job) {
    ParsedName name;
    if (!DeviceNameUtils::ParseFullName(node.requested_device(), &name)) return std::nullopt;
    return job.HostOf(name);
  }

  // A program knows its key only on its own host. Anything else may pass the key on to others.
  static bool MayUseKeyOn(const Node& user, const PodJob& job, Host host) {
    const std::optional<Host> of_user = HostOf(user, job);
    return !(IsExecute(user) || IsHostTransfer(user.type_string())) || !of_user.has_value() ||
           *of_user == host;
  }

  // The hosts that run what the op compiles: those of its execute ops or, without any, those that
  // its metadata names.
  static std::set<Host> HostsOf(const Node& compile, const std::vector<Node*>& users,
                                const PodJob& job) {
    std::set<Host> hosts;
    for (const Node* user : users) {
      if (!IsExecute(*user)) continue;
      if (const std::optional<Host> host = HostOf(*user, job)) hosts.insert(*host);
    }
    if (!hosts.empty()) return hosts;
    tensorflow::tpu::TPUCompileMetadataProto metadata;
    std::string serialized;
    if (!tensorflow::GetNodeAttr(compile.attrs(), "metadata", &serialized).ok() ||
        !metadata.ParseFromString(serialized)) {
      return hosts;  // its kernel reports what is wrong
    }
    for (const auto& devices : metadata.device_assignment().computation_devices()) {
      for (const auto core : devices.replica_device_ids()) {
        const Host host = job.pod.shape.HostOf(Core(static_cast<int>(core)));
        if (job.names.Has(host)) hosts.insert(host);
      }
    }
    return hosts;
  }

  const std::map<std::string, PodJob> jobs_;
  Graph& graph_;
  bool copied_ = false;
};

class FormPod : public tensorflow::GraphOptimizationPass {
 public:
  absl::Status Run(const tensorflow::GraphOptimizationPassOptions& options) override {
    if (options.graph == nullptr || *options.graph == nullptr || options.device_set == nullptr) {
      return absl::OkStatus();
    }
    std::map<std::string, PodJob> jobs = PodJobsOf(*options.device_set);
    if (jobs.empty()) return absl::OkStatus();
    return PodFormer(std::move(jobs), options.graph->get()).Run();
  }
};

REGISTER_OPTIMIZATION(tensorflow::OptimizationPassRegistry::PRE_PLACEMENT, kFormPodPhase, FormPod);

}  // namespace
}  // namespace tf_tpu_ext
