#include "cc/compiler/lower/rewrite_functions.h"

#include <algorithm>
#include <functional>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "cc/ops/op_names.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/function.pb.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "xla/tsl/platform/errors.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::FunctionDef;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::NodeDef;

// `change` returns whether it has changed the function.
absl::Status ChangeFunctions(FunctionLibraryDefinition* library,
                             const std::function<bool(FunctionDef*)>& change) {
  for (const std::string& name : library->ListFunctionNames()) {
    FunctionDef function = *library->Find(name);
    if (change(&function)) TF_RETURN_IF_ERROR(library->ReplaceFunction(name, function));
  }
  return absl::OkStatus();
}

void RemovePlacementOf(NodeDef* node) {
  node->clear_device();
  node->mutable_attr()->erase(kShardingAttribute);
  node->mutable_attr()->erase("_XlaShardingV2");
  if (node->op() != "XlaSharding") return;
  const tensorflow::AttrValue type = node->attr().at("T");
  node->set_op("Identity");
  node->mutable_attr()->clear();
  (*node->mutable_attr())["T"] = type;
}

}  // namespace

absl::Status RemovePlacement(FunctionLibraryDefinition* library) {
  return ChangeFunctions(library, [](FunctionDef* function) {
    for (NodeDef& node : *function->mutable_node_def()) RemovePlacementOf(&node);
    return true;
  });
}

absl::Status CountClusters(const std::map<std::string, std::string>& marks,
                           FunctionLibraryDefinition* library) {
  if (marks.empty()) return absl::OkStatus();
  return ChangeFunctions(library, [&marks](FunctionDef* function) {
    absl::flat_hash_set<std::string> counted;
    for (NodeDef& node : *function->mutable_node_def()) {
      if (node.op() != kHostComputeOp) continue;
      auto& attributes = *node.mutable_attr();
      const auto mark = marks.find(attributes["send_key"].s());
      if (mark == marks.end()) continue;
      attributes["counted_as"].set_s(mark->second);
      attributes["counts_call"].set_b(counted.insert(mark->second).second);
      // It claims that the op comes from a function with the mark's name, and errors would show
      // that.
      node.clear_experimental_debug_info();
    }
    return !counted.empty();
  });
}

absl::Status TakeHostFunctions(FunctionLibraryDefinition* library,
                               std::vector<HostFunctionSource>* functions) {
  absl::flat_hash_map<std::string, int> numbers;
  return ChangeFunctions(library, [&numbers, functions](FunctionDef* function) {
    bool changed = false;
    for (NodeDef& node : *function->mutable_node_def()) {
      if (node.op() != kHostCallOp) continue;
      auto& attributes = *node.mutable_attr();
      const std::string& called = attributes["function"].s();
      const auto [number, fresh] = numbers.emplace(called, functions->size());
      if (fresh) {
        functions->push_back({called, attributes["library"].s(), attributes["source"].s(),
                              attributes["cluster"].s()});
      }
      // The call is compiled from the number alone, and nodes are copied more than once.
      attributes["library"].set_s("");
      attributes[kHostFunctionNumber].set_i(number->second);
      changed = true;
    }
    return changed;
  });
}

bool ChooseTpuPlatform(NodeDef* node) {
  if (node->op() != "XlaCallModule") return false;
  const auto found = node->mutable_attr()->find("platforms");
  if (found == node->mutable_attr()->end()) return false;
  auto& platforms = *found->second.mutable_list()->mutable_s();
  const auto tpu = std::find(platforms.begin(), platforms.end(), "TPU");
  if (tpu == platforms.end()) return false;
  const auto cpu = std::find(platforms.begin(), platforms.end(), "CPU");
  // The module branches on the platform's index in this list.
  if (cpu != platforms.end()) *cpu = "TPU";
  *tpu = "CPU";
  return true;
}

absl::Status ChooseTpuPlatforms(FunctionLibraryDefinition* library) {
  return ChangeFunctions(library, [](FunctionDef* function) {
    bool changed = false;
    for (NodeDef& node : *function->mutable_node_def()) {
      changed = ChooseTpuPlatform(&node) || changed;
    }
    return changed;
  });
}

}  // namespace tf_tpu_ext
