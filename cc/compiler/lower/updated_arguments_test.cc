#include "cc/compiler/lower/updated_arguments.h"

#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

using Pairs = std::vector<std::pair<ArgumentNumber, OutputNumber>>;

TEST(UpdatedArgumentsTest, ReadsThemOfTheEntry) {
  const char* const module = R"mlir(
module {
  func.func @other(%arg0: tensor<i1> {tf.aliasing_output = 9 : i64}) { return }
  func.func @main(%arg0: tensor<8xf32> loc("x"("a.py":1:2)),
                  %arg1: tensor<f32> {mhlo.sharding = "", tf.aliasing_output = 1 : i64} loc(#loc3),
                  %arg12: tensor<*x!tf_type.resource<tensor<f32>>>
                      {tf._user_specified_name = "a) %arg7: tf.aliasing_output = 5 \" )",
                       tf.aliasing_output = 10 : i64}) -> (tensor<f32>, tensor<f32>) {
    %0 = "tf.Call"(%arg3) {tf.aliasing_output = 3 : i64} : (tensor<f32>) -> tensor<f32>
  }
})mlir";
  EXPECT_EQ(UpdatedArguments(module),
            Pairs({{ArgumentNumber(1), OutputNumber(1)}, {ArgumentNumber(12), OutputNumber(10)}}));
}

TEST(UpdatedArgumentsTest, OfOtherTextsThereAreNone) {
  EXPECT_EQ(UpdatedArguments(""), Pairs());
  EXPECT_EQ(UpdatedArguments("func.func @main() { return }"), Pairs());
  EXPECT_EQ(UpdatedArguments("@main(%argument {tf.aliasing_output = 1"), Pairs());
  EXPECT_EQ(UpdatedArguments("@main(%arg0 : \"endless"), Pairs());
}

}  // namespace
}  // namespace tf_tpu_ext
