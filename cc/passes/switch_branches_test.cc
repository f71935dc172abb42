#include "cc/passes/switch_branches.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::NodeDef;

class SwitchBranchesTest : public ::testing::Test {
 protected:
  void Add(const std::string& name, const std::string& op, const std::vector<std::string>& inputs) {
    NodeDef& node = nodes_[name];
    node.set_name(name);
    node.set_op(op);
    for (const std::string& input : inputs) node.add_input(input);
  }

  std::map<std::string, Branches> Find() {
    std::map<std::string, const NodeDef*> by_name;
    for (const auto& [name, node] : nodes_) by_name[name] = &node;
    return FindSwitchBranches(
        by_name, [](const std::string& input) { return input.substr(0, input.find(':')); });
  }

  std::map<std::string, NodeDef> nodes_;
};

TEST_F(SwitchBranchesTest, BetweenSwitchAndMerge) {
  Add("x", "Placeholder", {});
  Add("p", "Placeholder", {});
  Add("switch", "Switch", {"x", "p"});
  Add("on_true", "Neg", {"switch:1"});
  Add("on_false", "Neg", {"switch"});
  Add("beside", "Const", {"^on_false"});
  Add("merge", "Merge", {"on_false", "on_true"});
  Add("after", "Neg", {"merge"});
  const auto branches = Find();
  EXPECT_EQ(branches.at("on_true"), Branches{"p=1"});
  EXPECT_EQ(branches.at("on_false"), Branches{"p=0"});
  EXPECT_EQ(branches.at("beside"), Branches{"p=0"});
  EXPECT_EQ(branches.count("x") + branches.count("switch") + branches.count("merge") +
                branches.count("after"),
            0u);
}

TEST_F(SwitchBranchesTest, AfterAnInnerConditionalStillInTheOuter) {
  Add("x", "Placeholder", {});
  Add("p", "Placeholder", {});
  Add("q", "Placeholder", {});
  Add("outer", "Switch", {"x", "p"});
  Add("inner", "Switch", {"outer:output_true:0", "q"});
  Add("both", "Neg", {"inner:output_true:0"});
  Add("merge", "Merge", {"inner:output_false:0", "both:0"});
  const auto branches = Find();
  EXPECT_EQ(branches.at("both"), (Branches{"p=1", "q=1"}));
  EXPECT_EQ(branches.at("merge"), Branches{"p=1"});
}

TEST_F(SwitchBranchesTest, IterationsAreNone) {
  Add("x", "Placeholder", {});
  Add("enter", "Enter", {"x"});
  Add("merge", "Merge", {"enter", "next"});
  Add("less", "Less", {"merge", "merge"});
  Add("condition", "LoopCond", {"less"});
  Add("switch", "Switch", {"merge", "condition"});
  Add("body", "Neg", {"switch:1"});
  Add("next", "NextIteration", {"body"});
  Add("exit", "Exit", {"switch"});
  EXPECT_TRUE(Find().empty());
}

}  // namespace
}  // namespace tf_tpu_ext
