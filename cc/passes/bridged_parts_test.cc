#include "cc/passes/bridged_parts.h"

#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/framework/node_def.pb.h"

namespace tf_tpu_ext {
namespace {

BridgedParts::Made Named(const std::string& name) {
  auto made = std::make_shared<tensorflow::GraphDef>();
  made->add_node()->set_name(name);
  return made;
}

TEST(BridgedPartsTest, TheLastUsedStay) {
  BridgedParts kept(Named("part0")->ByteSizeLong() * 2);
  kept.Keep("0", Named("part0"));
  kept.Keep("1", Named("part1"));
  EXPECT_EQ(kept.Find("0")->node(0).name(), "part0");
  kept.Keep("2", Named("part2"));
  EXPECT_EQ(kept.Find("1"), nullptr);
  EXPECT_NE(kept.Find("0"), nullptr);
  kept.Keep("0", Named("again"));
  EXPECT_EQ(kept.Find("0")->node(0).name(), "again");
  EXPECT_NE(kept.Find("2"), nullptr);
  kept.Keep("large", Named(std::string(1000, 'x')));
  EXPECT_EQ(kept.Find("large"), nullptr);
  EXPECT_EQ(kept.Find("0"), nullptr);
}

}  // namespace
}  // namespace tf_tpu_ext
