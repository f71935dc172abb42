#include "cc/compiler/lower/cluster_marks.h"

#include <map>
#include <string>

#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

using Marks = std::map<std::string, std::string>;

constexpr char kModule[] = R"mlir(#loc1 = loc("step.py":3:1)
#loc2 = loc("mul@outside_compilation_cluster_00ff"(#loc1))
#loc20 = loc("add@outside_compilation_cluster_a1"(#loc1))
module {
  func.func @main(%arg0: tensor<f32> loc(fused[#loc1, #loc2])) -> (tensor<f32>) {
    %0 = "tf._XlaHostComputeMlir"(%arg0) <{host_mlir_module = "send_key = \22no\22 loc(#loc20)", recv_key = "r0", send_key = "s0"}> : (tensor<f32>) -> tensor<f32> loc(#loc4)
    "tf._XlaHostComputeMlir"(%0) <{recv_key = "r1", send_key = "s1"}> : (tensor<f32>) -> () loc(callsite(#loc20 at #loc1))
    "tf._XlaHostComputeMlir"(%0) <{recv_key = "r2", send_key = "s2"}> : (tensor<f32>) -> () loc(#loc1)
    "tf._XlaHostComputeMlir"(%0) <{recv_key = "r3", send_key = "s3"}> : (tensor<f32>) -> () loc(#loc5)
    %1 = "tf.Sin"(%0) : (tensor<f32>) -> tensor<f32> loc(#loc2)
  } loc(#loc1)
}
#loc3 = loc(fused["Mul:", #loc2])
#loc4 = loc(callsite(#loc3 at #loc1))
#loc5 = loc(callsite(#loc6 at #loc1))
#loc6 = loc(callsite(#loc5 at #loc7))
)mlir";

TEST(ClusterMarksTest, AreFoundThroughNamedLocations) {
  EXPECT_EQ(ClusterMarks(kModule), Marks({{"s0", "outside_compilation_cluster_00ff"},
                                          {"s1", "outside_compilation_cluster_a1"}}));
}

TEST(ClusterMarksTest, OfOtherTextsThereAreNone) {
  EXPECT_EQ(ClusterMarks(""), Marks());
  EXPECT_EQ(ClusterMarks("outside_compilation_cluster_1"), Marks());
  EXPECT_EQ(ClusterMarks("\"tf._XlaHostComputeMlir\"( outside_compilation_cluster_1 loc("),
            Marks());
}

}  // namespace
}  // namespace tf_tpu_ext
