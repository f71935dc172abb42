#include "cc/compiler/lower/op_lines.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/platform/stack_frame.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::FunctionDef;

constexpr char kModuleWithPlaces[] = R"mlir(#loc1 = loc("train.py":30:1)
#loc2 = loc("/v/site-packages/tensorflow/python/ops/math_ops.py":7:1)
#loc3 = loc("model.py":12:1)
module @m {
  func.func @main(%arg0: tensor<f32> loc(fused[#loc1, #loc4])) -> (tensor<f32>) {
    %0 = "tf.MatMul"(%arg0) : (tensor<f32>) -> tensor<f32> loc(#loc5)
    %1 = "tf.Tanh"(%0) : (tensor<f32>) -> tensor<f32> loc(#loc6)
    %2 = "tf.Tanh"(%1) : (tensor<f32>) -> tensor<f32> loc(#loc7)
    %3 = "tf.Sin"(%2) : (tensor<f32>) -> tensor<f32> loc("sin")
    return %3 : tensor<f32> loc(#loc)
  } loc(#loc)
} loc(#loc)
#loc = loc(unknown)
#loc4 = loc("main"(#loc1))
#loc5 = loc(fused["MatMul:", callsite("dense/MatMul"(#loc1) at callsite(#loc3 at #loc2))])
#loc6 = loc(callsite(fused["Tanh:", "tanh@inner"] at fused["Call:", callsite("Call"(#loc1) at #loc3)]))
#loc7 = loc(callsite(fused["Tanh:", callsite("tanh@other"("say \22it\22.py":5:1) at #loc2)] at #loc5))
)mlir";

TEST(OpLinesTest, OfModulesAreTheInnermostOfTheUsers) {
  std::string module = kModuleWithPlaces;
  const OpLines lines = OpLines::OfModule(&module);
  EXPECT_EQ(lines.Find("dense/MatMul").Text(), "model.py:12");
  EXPECT_EQ(lines.Find("dense/MatMul_3").Text(), "model.py:12");
  // The line of the call is used if the inlined op's own line is unknown.
  EXPECT_EQ(lines.Find("tanh").Text(), "model.py:12");
  EXPECT_FALSE(lines.Find("sin").known());
  EXPECT_FALSE(lines.Find("absent").known());
}

TEST(OpLinesTest, OpsOfOneNameAndOtherLinesGetNamesOfTheirOwn) {
  std::string module = kModuleWithPlaces;
  const OpLines lines = OpLines::OfModule(&module);
  EXPECT_EQ(lines.Find("tanh_1").Text(), "say \"it\".py:5");
  EXPECT_NE(module.find("-> tensor<f32> loc(\"tanh_1\")\n"), std::string::npos);
  EXPECT_NE(module.find("-> tensor<f32> loc(#loc6)\n"), std::string::npos);
}

TEST(OpLinesTest, NoTextIsTooStrange) {
  for (const char* text :
       {"", "#loc", "#loc1 = loc(#loc1)\n \"op\" loc(#loc1)", " loc(fused[", " loc(\"a\\",
        " loc(callsite(\"a\")", " loc(fused[?])", " loc(\"file\":99999999999999:1)"}) {
    std::string module = text;
    const OpLines lines = OpLines::OfModule(&module);
    EXPECT_EQ(module, text);
    EXPECT_FALSE(lines.Find("a").known());
  }
}

// Adds functions whose ops are made by lines 1, 2, ... of a file with the function's name.
class Functions {
 public:
  void Add(const std::string& name, const std::vector<std::pair<std::string, std::string>>& ops) {
    FunctionDef function;
    function.mutable_signature()->set_name(name);
    tensorflow::StackTracesMap traces;
    int line = 0;
    for (const auto& [op, called] : ops) {
      tensorflow::NodeDef* node = function.add_node_def();
      node->set_name(op);
      node->set_op("Op");
      if (!called.empty()) {
        const std::string attribute = op == "while" ? "body" : "f";
        (*node->mutable_attr())[attribute].mutable_func()->set_name(called);
      }
      traces[op] = std::make_shared<tensorflow::FrozenStackTrace>(
          std::vector<tensorflow::StackFrame>{tensorflow::StackFrame(name + ".py", ++line, "f")});
    }
    ASSERT_TRUE(library_.AddFunctionDef(function, traces).ok());
  }

  const tensorflow::FunctionLibraryDefinition& library() const { return library_; }

 private:
  tensorflow::FunctionLibraryDefinition library_{tensorflow::OpRegistry::Global(),
                                                 tensorflow::FunctionDefLibrary()};
};

TEST(OpLinesTest, OfFunctionsFollowCallsAndBodies) {
  Functions functions;
  functions.Add("f", {{"MatMul", ""}, {"call", "g"}, {"while", "body"}, {"again", "f"}});
  functions.Add("g", {{"Tanh", ""}, {"MatMul", ""}});
  functions.Add("body", {{"while/Mul", ""}});
  const OpLines lines("f", functions.library());
  EXPECT_EQ(lines.Find("MatMul").Text(), "f.py:1");
  EXPECT_EQ(lines.Find("call/MatMul").Text(), "g.py:2");
  EXPECT_EQ(lines.Find("call/Absent").Text(), "f.py:2");
  EXPECT_EQ(lines.Find("while/Mul").Text(), "body.py:1");
  EXPECT_EQ(lines.Find("again/again/call/Tanh").Text(), "g.py:1");
  EXPECT_FALSE(lines.Find("absent").known());
}

TEST(OpLinesTest, WithoutTheFunctionThereAreNone) {
  EXPECT_FALSE(OpLines("absent", Functions().library()).Find("MatMul").known());
}

}  // namespace
}  // namespace tf_tpu_ext
