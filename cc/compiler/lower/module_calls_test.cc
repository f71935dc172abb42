#include "cc/compiler/lower/module_calls.h"

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

TEST(CheckNoRecursionTest, CallsInOneDirectionAreFine) {
  EXPECT_TRUE(CheckNoRecursion(R"(module {
  func.func @main(%x: tensor<f32>) -> tensor<f32> {
    %0 = "tf.PartitionedCall"(%x) <{f = @a}> : (tensor<f32>) -> tensor<f32>
    %1 = "tf.While"(%0) <{body = @b, cond = @a}> : (tensor<f32>) -> tensor<f32>
    return %1 : tensor<f32>
  }
  func.func private @a(%x: tensor<f32>) -> tensor<f32> {
    %0 = "tf.PartitionedCall"(%x) <{f = @b, config = "@main @a"}> : (tensor<f32>) -> tensor<f32>
    return %0 : tensor<f32>
  }
  func.func private @b(%x: tensor<f32>) -> tensor<f32> {
    %0 = "tf.PartitionedCall"(%x) <{f = @"not here"}> : (tensor<f32>) -> tensor<f32>
    return %0 : tensor<f32>
  }
})")
                  .ok());
  EXPECT_TRUE(CheckNoRecursion("").ok());
  EXPECT_TRUE(CheckNoRecursion("@").ok());
  EXPECT_TRUE(CheckNoRecursion("func.func @a \"\\").ok());
}

TEST(CheckNoRecursionTest, AFunctionThatCallsItselfIsAnError) {
  const absl::Status status = CheckNoRecursion(R"(module {
  func.func @main(%x: tensor<f32>) -> tensor<f32> {
    %0 = func.call @main(%x) : (tensor<f32>) -> tensor<f32>
    return %0 : tensor<f32>
  }
})");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "calls itself: main -> main.")) << status;
}

TEST(CheckNoRecursionTest, FunctionsThatCallEachOtherAreAnError) {
  const absl::Status status = CheckNoRecursion(R"(module {
  func.func @main(%x: tensor<f32>) -> tensor<f32> {
    %0 = "tf.If"(%c, %x) <{then_branch = @"a b", else_branch = @c}> : (tensor<f32>) -> tensor<f32>
    return %0 : tensor<f32>
  }
  func.func private @c(%x: tensor<f32>) -> tensor<f32> {
    return %x : tensor<f32>
  }
  func.func private @"a b"(%x: tensor<f32>) -> tensor<f32> {
    %0 = "tf.StatefulPartitionedCall"(%x) <{f = @main}> : (tensor<f32>) -> tensor<f32>
    return %0 : tensor<f32>
  }
})");
  EXPECT_TRUE(absl::StrContains(status.message(), "calls itself: a b -> main -> a b.")) << status;
}

}  // namespace
}  // namespace tf_tpu_ext
