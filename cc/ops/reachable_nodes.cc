#include "cc/ops/reachable_nodes.h"

#include <iterator>
#include <map>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "cc/ops/op_names.h"

namespace tf_tpu_ext {

using tensorflow::FunctionDef;
using tensorflow::NameAttrList;
using tensorflow::NodeDef;

namespace {

template <typename Visit>
void VisitCallees(const NodeDef& node, Visit visit) {
  visit(node.op());
  for (const std::string& callee : FunctionsCalledBy(node)) visit(callee);
}

}  // namespace

std::vector<std::string> FunctionsCalledBy(const NodeDef& node) {
  // The attributes themselves come in another order in each process.
  std::map<std::string, std::vector<std::string>> named;
  for (const auto& [name, value] : node.attr()) {
    if (value.has_func()) named[name].push_back(value.func().name());
    for (const NameAttrList& callee : value.list().func()) named[name].push_back(callee.name());
  }
  std::vector<std::string> functions;
  for (auto& [name, callees] : named) absl::c_move(callees, std::back_inserter(functions));
  return functions;
}

bool AnyReachableNode(const std::string& function,
                      const tensorflow::FunctionLibraryDefinition& library,
                      absl::FunctionRef<bool(const NodeDef&)> predicate) {
  absl::flat_hash_set<std::string> seen = {function};
  std::vector<std::string> open = {function};
  while (!open.empty()) {
    const FunctionDef* definition = library.Find(open.back());
    open.pop_back();
    if (definition == nullptr) continue;
    const auto visit = [&](const std::string& callee) {
      if (seen.insert(callee).second) open.push_back(callee);
    };
    for (const NodeDef& node : definition->node_def()) {
      if (predicate(node)) return true;
      VisitCallees(node, visit);
    }
  }
  return false;
}

bool AnyNodeCalledBy(const NodeDef& node, const tensorflow::FunctionLibraryDefinition& library,
                     absl::FunctionRef<bool(const NodeDef&)> predicate) {
  bool any = false;
  VisitCallees(node, [&](const std::string& callee) {
    any = any || AnyReachableNode(callee, library, predicate);
  });
  return any;
}

bool HoldsOutsideCompilation(const std::string& function,
                             const tensorflow::FunctionLibraryDefinition& library) {
  return AnyReachableNode(function, library, [](const NodeDef& node) {
    return node.attr().contains(kOutsideCompilation);
  });
}

}  // namespace tf_tpu_ext
