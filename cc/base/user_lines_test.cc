#include "cc/base/user_lines.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tensorflow/core/platform/stack_frame.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::StackFrame;

TEST(UserLinesTest, TheInnermostLineThatIsNoLibrarysCounts) {
  const tensorflow::FrozenStackTrace trace(std::vector<StackFrame>{
      StackFrame("train.py", 30, "main"),
      StackFrame("/v/site-packages/keras/src/trainers/trainer.py", 7, "fit"),
      StackFrame("model.py", 12, "call"),
      StackFrame("/v/site-packages/keras/src/ops/numpy.py", 9, "matmul"),
      StackFrame("/v/site-packages/optree/ops.py", 798, "tree_map"),
      StackFrame("<frozen importlib>", 1, "load"),
      StackFrame("/v/site-packages/tensorflow/python/framework/ops.py", 1221, "from_node_def")});
  EXPECT_EQ(UserLine(&trace).Text(), "model.py:12");
}

TEST(UserLinesTest, ThePackageContainsItsLibraries) {
  const char* const package = "/v/site-packages/tf_tpu_ext/";
  for (const char* file : {"libtf_tpu_ext_ops.so", "tensorflow-2.20/libtf_tpu_ext_ops.so"}) {
    EXPECT_EQ(PackageFolder(absl::StrCat(package, file)), package);
  }
  EXPECT_EQ(PackageFolder("/v/tf_tpu_ext/tf_tpu_ext/lib.so"), "/v/tf_tpu_ext/tf_tpu_ext/");
  EXPECT_EQ(PackageFolder("/build/tests/base_test"), "");
}

TEST(UserLinesTest, ATextIsReadBack) {
  const SourceLine line = ParseSourceLine("C:model.py:12");
  EXPECT_EQ(line.file, "C:model.py");
  EXPECT_EQ(line.line, 12);
  for (const char* text : {"", "model.py", "model.py:", "model.py:x"}) {
    EXPECT_FALSE(ParseSourceLine(text).known()) << text;
  }
}

TEST(UserLinesTest, ThereMayBeNone) {
  EXPECT_FALSE(UserLine(nullptr).known());
  const tensorflow::FrozenStackTrace trace(std::vector<StackFrame>{
      StackFrame("/v/site-packages/tensorflow/python/framework/ops.py", 1221, "from_node_def")});
  EXPECT_FALSE(UserLine(&trace).known());
  EXPECT_TRUE(IsLibraryFile("/v/site-packages/tensorflow/compiler/tf2xla/ops/gen_xla_ops.py"));
  EXPECT_EQ(UserLine(&trace).Text(), "");
}

}  // namespace
}  // namespace tf_tpu_ext
