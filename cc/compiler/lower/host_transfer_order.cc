#include "cc/compiler/lower/host_transfer_order.h"

#include <functional>
#include <map>
#include <queue>
#include <set>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cc/ops/op_names.h"
#include "cc/ops/reachable_nodes.h"
#include "tensorflow/compiler/tf2xla/side_effect_util.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::AttrValue;
using tensorflow::FunctionDef;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::NodeDef;

constexpr char kReceiveActivationsOp[] = "XlaRecvTPUEmbeddingActivations";
constexpr char kSendGradientsOp[] = "XlaSendTPUEmbeddingGradients";

bool IsBridgeHostCompute(const NodeDef& node) {
  return node.op() == "_XlaHostComputeMlir" || node.op() == "XlaHostCompute";
}

bool TalksToHost(const NodeDef& node) {
  static const auto* const ops = new absl::flat_hash_set<std::string>(
      {kHostCallOp, kHostComputeOp, "XlaSendToHost", "XlaRecvFromHost", "InfeedDequeue",
       "InfeedDequeueTuple", "OutfeedEnqueue", "OutfeedEnqueueTuple", kReceiveActivationsOp,
       kSendGradientsOp});
  return ops->contains(node.op());
}

// The bridge's op stands for a transfer, or for a call if it names a function. Its result shapes
// are in an attribute that only one of the two forms has. Many of its other attributes mean nothing
// here.
void RenameHostCompute(NodeDef* node) {
  auto& attributes = *node->mutable_attr();
  AttrValue shapes;
  shapes.mutable_list();
  if (auto it = attributes.find("shapes"); it != attributes.end()) {
    shapes = it->second;
  } else if (it = attributes.find("_output_shapes"); it != attributes.end()) {
    shapes = it->second;
  }
  static const auto* const names =
      new std::map<std::string, std::string>({{"Tinputs", "Tinputs"},
                                              {"Toutputs", "Toutputs"},
                                              {"send_key", "send_key"},
                                              {"recv_key", "recv_key"},
                                              {"manual_sharding", "manual_sharding"},
                                              {kHostFunctionName, "function"},
                                              {kHostFunctionLibrary, "library"},
                                              {kHostFunctionSource, "source"},
                                              {kHostFunctionCluster, "cluster"}});
  std::map<std::string, AttrValue> kept;
  for (const auto& [name, kept_name] : *names) {
    if (auto it = attributes.find(name); it != attributes.end()) kept[kept_name] = it->second;
  }
  const bool is_call = kept.count("function") > 0;
  for (const char* name : {"send_key", "recv_key", "manual_sharding"}) {
    if (is_call) kept.erase(name);
  }
  node->set_op(is_call ? kHostCallOp : kHostComputeOp);
  attributes.clear();
  for (auto& [name, value] : kept) attributes[name] = std::move(value);
  attributes["shapes"] = std::move(shapes);
}

std::string InputNode(const std::string& input) {
  return std::string(
      absl::StripPrefix(static_cast<std::string>(*absl::StrSplit(input, ':').begin()), "^"));
}

// Gradients of embeddings need not depend on the activations, but they respond to them, so they
// come later.
void OrderEmbeddingOps(FunctionDef* function) {
  std::string receive;
  for (const NodeDef& node : function->node_def()) {
    if (node.op() == kReceiveActivationsOp) receive = node.name();
  }
  if (receive.empty()) return;
  for (NodeDef& node : *function->mutable_node_def()) {
    if (node.op() == kSendGradientsOp) node.add_input(absl::StrCat("^", receive));
  }
}

// Node numbers in an order that respects all inputs and otherwise follows the program.
std::vector<int> ProgramOrder(const FunctionDef& function) {
  const int size = function.node_def_size();
  absl::flat_hash_map<std::string, int> number;
  for (int i = 0; i < size; ++i) number[function.node_def(i).name()] = i;
  std::vector<std::vector<int>> consumers(size);
  std::vector<int> missing(size, 0);
  for (int i = 0; i < size; ++i) {
    for (const std::string& input : function.node_def(i).input()) {
      auto producer = number.find(InputNode(input));
      if (producer == number.end()) continue;
      consumers[producer->second].push_back(i);
      ++missing[i];
    }
  }
  std::priority_queue<int, std::vector<int>, std::greater<int>> ready;
  for (int i = 0; i < size; ++i) {
    if (missing[i] == 0) ready.push(i);
  }
  std::vector<int> order;
  while (!ready.empty()) {
    const int i = ready.top();
    ready.pop();
    order.push_back(i);
    for (int consumer : consumers[i]) {
      if (--missing[consumer] == 0) ready.push(consumer);
    }
  }
  return order;
}

class FunctionOrderer {
 public:
  explicit FunctionOrderer(FunctionLibraryDefinition* library) : library_(library) {}

  // Orders the function and everything it calls. Returns whether it talks to the host.
  absl::StatusOr<bool> Order(const std::string& name) {
    if (auto known = talks_.find(name); known != talks_.end()) return known->second;
    talks_[name] = false;  // a recursive call adds nothing
    const FunctionDef* found = library_->Find(name);
    if (found == nullptr) return false;
    FunctionDef function = *found;
    std::vector<bool> ordered(function.node_def_size(), false);
    bool any = false;
    for (int i = 0; i < function.node_def_size(); ++i) {
      NodeDef* node = function.mutable_node_def(i);
      if (IsBridgeHostCompute(*node)) RenameHostCompute(node);
      ordered[i] = TalksToHost(*node);
      for (const std::string& callee : FunctionsCalledBy(*node)) {
        TF_ASSIGN_OR_RETURN(const bool talks, Order(callee));
        if (talks) ordered[i] = true;
      }
      any = any || ordered[i];
    }
    if (!any) return false;
    OrderEmbeddingOps(&function);
    Chain(ordered, &function);
    TF_RETURN_IF_ERROR(library_->ReplaceFunction(name, function));
    talks_[name] = true;
    return true;
  }

 private:
  static void Chain(const std::vector<bool>& ordered, FunctionDef* function) {
    std::string previous;
    for (int i : ProgramOrder(*function)) {
      if (!ordered[i]) continue;
      NodeDef* node = function->mutable_node_def(i);
      auto& attributes = *node->mutable_attr();
      attributes[tensorflow::kXlaOriginalOutsideCompilationNodeName].set_s(node->name());
      AttrValue inputs;
      inputs.mutable_list()->add_s(previous.empty() ? tensorflow::kXlaTokenArgNodeName : previous);
      attributes[tensorflow::kXlaTokenInputNodesAttrName] = std::move(inputs);
      // tf2xla visits nodes along edges, and has to see the owner of a token before its users.
      if (!previous.empty()) node->add_input(absl::StrCat("^", previous));
      previous = node->name();
    }
  }

  FunctionLibraryDefinition* const library_;
  absl::flat_hash_map<std::string, bool> talks_;
};

}  // namespace

absl::Status OrderHostTransfers(const std::string& entry, FunctionLibraryDefinition* library,
                                bool* has_host_transfers) {
  TF_ASSIGN_OR_RETURN(*has_host_transfers, FunctionOrderer(library).Order(entry));
  return absl::OkStatus();
}

}  // namespace tf_tpu_ext
