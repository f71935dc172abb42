#include "cc/passes/launch_from_host.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cc/base/machine.h"
#include "cc/device/virtual_device.h"
#include "cc/ops/execute_nodes.h"
#include "cc/ops/op_names.h"
#include "cc/program/traced_options.h"
#include "tensorflow/core/common_runtime/composite_device.h"
#include "tensorflow/core/common_runtime/device_set.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/statusor.h"
#include "tensorflow/core/protobuf/tpu/compile_metadata.pb.h"
#include "tensorflow/core/util/device_name_utils.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Edge;
using tensorflow::Graph;
using tensorflow::Node;

// After TensorFlow's own passes of the phase, the last before the graph is partitioned by device.
constexpr int kLaunchFromHostPhase = 999;

// Whether the node reads an argument from a variable or an iterator.
bool ReadsResource(const Node& node) {
  const std::string& type = node.type_string();
  return type == "ReadVariableOp" || type == "IteratorGetNext" ||
         type == "IteratorGetNextAsOptional";
}

// Whether the node does the same on the host, whose memory is also the core's.
bool OnlyBringsArguments(const Node& node) {
  const std::string& type = node.type_string();
  // If cores may reach the end of their data at different steps, their iterators return optionals.
  return node.IsArg() || node.IsIdentity() || node.IsControlFlow() || node.IsConstant() ||
         type == "NoOp" || type == "OptionalFromValue" || type == "OptionalGetValue" ||
         type == "OptionalHasValue" || type == "OptionalNone" || ReadsResource(node);
}

class HostLaunch {
 public:
  HostLaunch(const CompositeDevices& composite_devices, const tensorflow::DeviceSet* devices,
             Graph* graph)
      : composite_devices_(composite_devices), devices_(devices), graph_(*graph) {}

  absl::Status Run() {
    std::map<std::string, std::vector<Node*>> nodes_of;
    for (Node* node : graph_.op_nodes()) {
      if (CoreOfDevice(node->assigned_device_name()).has_value() && IsHere(*node)) {
        nodes_of[node->assigned_device_name()].push_back(node);
      }
    }
    for (const auto& [core, nodes] : nodes_of) {
      if (!OnlyLaunches(nodes)) continue;
      TF_RETURN_IF_ERROR(Move(core, nodes));
    }
    RemoveUnused();
    return absl::OkStatus();
  }

 private:
  // Whether the node's device is in this process. Another host does this for its part of the graph.
  bool IsHere(const Node& node) const {
    if (devices_ == nullptr) return true;
    const tensorflow::Device* device = devices_->FindDeviceByName(node.assigned_device_name());
    return device == nullptr || device->IsLocal();
  }

  // The devices behind the node's composite device; null if it has its own device.
  const std::vector<std::string>* DevicesBehind(const Node& node) const {
    const auto found = composite_devices_.find(node.assigned_device_name());
    return found == composite_devices_.end() ? nullptr : &found->second;
  }

  bool OnlyLaunches(const std::vector<Node*>& nodes) const {
    if (std::none_of(nodes.begin(), nodes.end(),
                     [](const Node* node) { return IsExecute(*node); })) {
      return false;
    }
    return std::all_of(nodes.begin(), nodes.end(), [this](const Node* node) {
      if (!IsExecute(*node) && !OnlyBringsArguments(*node)) return false;
      // From a composite device, the host can be given only arguments.
      return std::all_of(node->in_edges().begin(), node->in_edges().end(), [&](const Edge* edge) {
        return edge->IsControlEdge() || DevicesBehind(*edge->src()) == nullptr ||
               IsArgument(*edge->src());
      });
    });
  }

  // Whether the node on a composite device provides an argument, which it may pass into a loop or a
  // branch.
  bool IsArgument(const Node& packed) const {
    if (packed.IsArg()) return true;
    if (!packed.IsIdentity() && !packed.IsEnter() && !packed.IsSwitch()) return false;
    return std::all_of(packed.in_edges().begin(), packed.in_edges().end(), [&](const Edge* edge) {
      return DevicesBehind(*edge->src()) == nullptr ||
             (!edge->IsControlEdge() && IsArgument(*edge->src()));
    });
  }

  absl::Status Move(const std::string& core, const std::vector<Node*>& nodes) {
    std::string host;
    TF_RETURN_IF_ERROR(tensorflow::DeviceNameUtils::DeviceNameToCpuDeviceName(core, &host));
    for (Node* node : nodes) {
      node->set_assigned_device_name(host);
      if (IsExecute(*node)) node->AddAttr(kCoreDevice, core);
      const std::vector<const Edge*> edges(node->in_edges().begin(), node->in_edges().end());
      for (const Edge* edge : edges) {
        if (edge->IsControlEdge() || DevicesBehind(*edge->src()) == nullptr) continue;
        TF_ASSIGN_OR_RETURN(Node* const argument, ArgumentOfCore(edge->src(), core, host));
        const int output = edge->src_output(), input = edge->dst_input();
        graph_.RemoveEdge(edge);
        graph_.AddEdge(argument, output, node, input);
      }
      if (!ReadsResource(*node)) continue;
      TF_RETURN_IF_ERROR(LetHostRead(node, host));
    }
    return absl::OkStatus();
  }

  // A kernel accepts no resource of another device, and the node's resource belongs to the core.
  absl::Status LetHostRead(Node* node, const std::string& host) {
    const Edge* edge = nullptr;
    TF_RETURN_IF_ERROR(node->input_edge(0, &edge));
    tensorflow::NodeDef definition;
    definition.set_name(graph_.NewName(absl::StrCat(node->name(), "/host_handle")));
    definition.set_op(kHostHandleOp);
    TF_ASSIGN_OR_RETURN(Node* const handle, graph_.AddNode(std::move(definition)));
    handle->set_assigned_device_name(host);
    graph_.AddEdge(edge->src(), edge->src_output(), handle, 0);
    graph_.RemoveEdge(edge);
    graph_.AddEdge(handle, 0, node, 0);
    return absl::OkStatus();
  }

  // The core's value of an argument that has a value on each of several devices.
  absl::StatusOr<Node*> ArgumentOfCore(Node* packed, const std::string& core,
                                       const std::string& host) {
    Node*& argument = arguments_[{packed, core}];
    if (argument != nullptr) return argument;
    const std::vector<std::string>& devices = *DevicesBehind(*packed);
    const auto place = std::find(devices.begin(), devices.end(), core);
    if (place == devices.end()) {
      return absl::InternalError(
          absl::StrCat("A TPU computation on ", core, " reads argument ", packed->name(),
                       ", whose values are on other devices (", packed->assigned_device_name(),
                       "). Report this with the program."));
    }
    const int number = place - devices.begin();
    tensorflow::NodeDef definition = packed->def();
    definition.set_name(graph_.NewName(absl::StrCat(packed->name(), "/core", number)));
    if (packed->IsArg()) tensorflow::AddNodeAttr("sub_index", number, &definition);
    TF_ASSIGN_OR_RETURN(Node* const of_core, graph_.AddNode(std::move(definition)));
    of_core->set_assigned_device_name(host);
    for (const Edge* edge : packed->in_edges()) {
      Node* input = edge->src();
      if (DevicesBehind(*input) != nullptr) {
        TF_ASSIGN_OR_RETURN(input, ArgumentOfCore(input, core, host));
      }
      graph_.AddEdge(input, edge->src_output(), of_core, edge->dst_input());
    }
    argument = of_core;
    packed_.push_back(packed);
    return argument;
  }

  // A composite device of one device would keep that device in use.
  void RemoveUnused() {
    std::set<Node*> removed;
    // Backwards, because an argument comes after its inputs.
    for (auto packed = packed_.rbegin(); packed != packed_.rend(); ++packed) {
      if (removed.count(*packed) > 0) continue;
      const auto& edges = (*packed)->out_edges();
      const bool unused = std::all_of(edges.begin(), edges.end(),
                                      [](const Edge* edge) { return edge->dst()->IsSink(); });
      if (!unused) continue;
      graph_.RemoveNode(*packed);
      removed.insert(*packed);
    }
  }

  const CompositeDevices& composite_devices_;
  const tensorflow::DeviceSet* const devices_;
  Graph& graph_;
  std::map<std::pair<Node*, std::string>, Node*> arguments_;
  std::vector<Node*> packed_;  // what was copied for a core, once for each
};

// Whether all programs of the graph may be started from the host. The bridge has put the options
// that they were traced with into the metadata of their compile ops.
absl::StatusOr<bool> IsEnabled(const Graph& graph) {
  const ProgramOptions defaults = GetMachineOptions().programs;
  bool compiles = false;
  for (const Node* node : graph.op_nodes()) {
    if (node->type_string() != "_TPUCompileMlir") continue;
    compiles = true;
    tensorflow::tpu::TPUCompileMetadataProto metadata;
    const tensorflow::AttrValue* serialized = node->attrs().Find("metadata");
    ProgramOptions options = defaults;
    if (serialized != nullptr && metadata.ParseFromString(serialized->s())) {
      TF_RETURN_IF_ERROR(ApplyTracedOptions(metadata.compile_options(), &options));
    }
    if (!options.launch_from_host) return false;
  }
  return compiles || defaults.launch_from_host;
}

class LaunchFromHostPass : public tensorflow::GraphOptimizationPass {
 public:
  absl::Status Run(const tensorflow::GraphOptimizationPassOptions& options) override {
    if (!options.is_function_graph || options.graph == nullptr || *options.graph == nullptr) {
      return absl::OkStatus();
    }
    TF_ASSIGN_OR_RETURN(const bool enabled, IsEnabled(**options.graph));
    if (!enabled) return absl::OkStatus();
    CompositeDevices composite_devices;
    if (options.composite_devices != nullptr) {
      for (const tensorflow::CompositeDevice* device : *options.composite_devices) {
        composite_devices[device->name()] = *device->underlying_devices();
      }
    }
    return LaunchFromHost(composite_devices, options.device_set, options.graph->get());
  }
};

REGISTER_OPTIMIZATION(tensorflow::OptimizationPassRegistry::POST_REWRITE_FOR_EXEC,
                      kLaunchFromHostPhase, LaunchFromHostPass);

}  // namespace

absl::Status LaunchFromHost(const CompositeDevices& composite_devices,
                            const tensorflow::DeviceSet* devices, Graph* graph) {
  return HostLaunch(composite_devices, devices, graph).Run();
}

}  // namespace tf_tpu_ext
