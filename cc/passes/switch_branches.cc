#include "cc/passes/switch_branches.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::NodeDef;

bool IsSwitch(const NodeDef& node) { return node.op() == "Switch" || node.op() == "RefSwitch"; }
bool IsMerge(const NodeDef& node) { return node.op() == "Merge" || node.op() == "RefMerge"; }
bool IsNextIteration(const NodeDef& node) { return absl::EndsWith(node.op(), "NextIteration"); }

std::string NodeOf(const std::string& input) {
  const size_t begin = input.front() == '^' ? 1 : 0;
  return input.substr(begin, input.find(':') - begin);
}

// Whether an input is the true output of a Switch, as graphs or functions name it.
bool IsTrueOutput(const std::string& input) {
  return absl::EndsWith(input, ":1") || absl::StrContains(input, ":output_true:");
}

class Finder {
 public:
  Finder(const std::map<std::string, const NodeDef*>& nodes,
         const std::function<std::string(const std::string& input)>& maker_of)
      : by_name_(nodes), maker_of_(maker_of) {}

  std::map<std::string, Branches> Find() {
    for (const NodeDef* node : InOrder()) {
      if (Branches branches = BranchesOf(*node); !branches.empty()) {
        branches_.emplace(node->name(), std::move(branches));
      }
    }
    return std::move(branches_);
  }

 private:
  // Each node after its inputs, except those that an iteration gets from the previous one.
  std::vector<const NodeDef*> InOrder() const {
    std::map<std::string, int> missing;
    std::map<std::string, std::vector<const NodeDef*>> consumers;
    std::vector<const NodeDef*> order;
    for (const auto& [name, node] : by_name_) {
      for (const std::string& input : node->input()) {
        const auto maker = by_name_.find(NodeOf(input));
        if (maker == by_name_.end() || IsNextIteration(*maker->second)) continue;
        ++missing[name];
        consumers[maker->first].push_back(node);
      }
      if (missing[name] == 0) order.push_back(node);
    }
    for (size_t i = 0; i < order.size(); ++i) {
      for (const NodeDef* consumer : consumers[order[i]->name()]) {
        if (--missing[consumer->name()] == 0) order.push_back(consumer);
      }
    }
    return order;
  }

  Branches BranchesOf(const NodeDef& node) const {
    Branches branches;
    bool first = true;
    for (const std::string& input : node.input()) {
      const auto maker = by_name_.find(NodeOf(input));
      if (maker != by_name_.end() && IsNextIteration(*maker->second)) continue;
      Branches of_input = maker == by_name_.end() ? Branches() : BranchesOf(*maker->second, input);
      if (!IsMerge(node) || first) {
        branches.merge(of_input);
      } else {
        // It runs whichever branch was taken.
        Branches both;
        absl::c_set_intersection(branches, of_input, std::inserter(both, both.end()));
        branches = std::move(both);
      }
      first = false;
    }
    return branches;
  }

  Branches BranchesOf(const NodeDef& maker, const std::string& input) const {
    const auto found = branches_.find(maker.name());
    Branches branches = found == branches_.end() ? Branches() : found->second;
    if (!IsSwitch(maker) || maker.input_size() < 2 || input.front() == '^') return branches;
    const auto condition = by_name_.find(NodeOf(maker.input(1)));
    if (condition == by_name_.end() || condition->second->op() != "LoopCond") {
      branches.insert(absl::StrCat(maker_of_(maker.input(1)), "=", IsTrueOutput(input)));
    }
    return branches;
  }

  const std::map<std::string, const NodeDef*>& by_name_;
  const std::function<std::string(const std::string& input)>& maker_of_;
  std::map<std::string, Branches> branches_;
};

}  // namespace

std::map<std::string, Branches> FindSwitchBranches(
    const std::map<std::string, const NodeDef*>& nodes,
    const std::function<std::string(const std::string& input)>& maker_of) {
  if (absl::c_none_of(nodes, [](const auto& node) { return IsSwitch(*node.second); })) return {};
  return Finder(nodes, maker_of).Find();
}

}  // namespace tf_tpu_ext
