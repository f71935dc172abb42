#include "cc/compiler/overrides/override_ops.h"

#include <string>
#include <vector>

#include "cc/compiler/overrides/dynamic_ops.h"
#include "cc/compiler/overrides/tensorflow_kernels.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/function.pb.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/protobuf/tpu/compile_metadata.pb.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::FunctionLibraryDefinition;
using tensorflow::OpRegistrationData;
using tensorflow::OpRegistry;

tensorflow::FunctionDef FunctionOf(const std::string& name, const std::vector<std::string>& ops) {
  tensorflow::FunctionDef function;
  function.mutable_signature()->set_name(name);
  for (const std::string& op : ops) {
    tensorflow::NodeDef* node = function.add_node_def();
    node->set_name("node_of_" + op);
    node->set_op(op);
  }
  return function;
}

class OverrideOpsTest : public testing::Test {
 protected:
  OverrideOpsTest() : library_(OpRegistry::Global(), tensorflow::FunctionDefLibrary()) {}

  void Add(const std::string& name, const std::vector<std::string>& ops) {
    ASSERT_TRUE(library_.AddFunctionDef(FunctionOf(name, ops)).ok());
  }

  std::vector<std::string> OpsOf(const std::string& name) const {
    std::vector<std::string> ops;
    for (const auto& node : library_.Find(name)->node_def()) ops.push_back(node.op());
    return ops;
  }

  FunctionLibraryDefinition library_;
};

using Ops = std::vector<std::string>;

TEST_F(OverrideOpsTest, HaveTheSignatureOfTheStockOp) {
  RegisterOverrideOps("TpuExtTest>", {"Cumsum", "NoSuchOp"}, "for a test.");
  const OpRegistrationData *stock = nullptr, *made = nullptr;
  ASSERT_TRUE(OpRegistry::Global()->LookUp("Cumsum", &stock).ok());
  ASSERT_TRUE(OpRegistry::Global()->LookUp("TpuExtTest>Cumsum", &made).ok());
  EXPECT_EQ(made->op_def.input_arg_size(), stock->op_def.input_arg_size());
  EXPECT_EQ(made->op_def.attr_size(), stock->op_def.attr_size());
  EXPECT_EQ(made->op_def.output_arg_size(), stock->op_def.output_arg_size());
  EXPECT_EQ(made->op_def.summary(), "Cumsum for a test.");
  EXPECT_NE(made->shape_inference_fn, nullptr);
  // Ops that this TensorFlow lacks are left out.
  EXPECT_FALSE(OpRegistry::Global()->LookUp("TpuExtTest>NoSuchOp", &made).ok());
}

TEST_F(OverrideOpsTest, ReplaceStockOpsInAllFunctions) {
  Add("first", {"Cumsum", "Abs", "Cumsum"});
  Add("second", {"Abs"});
  Add("third", {"Roll"});
  ASSERT_TRUE(ReplaceByOverrides("Mine>", {"Cumsum", "Roll"}, &library_).ok());
  EXPECT_EQ(OpsOf("first"), Ops({"Mine>Cumsum", "Abs", "Mine>Cumsum"}));
  EXPECT_EQ(OpsOf("second"), Ops({"Abs"}));
  EXPECT_EQ(OpsOf("third"), Ops({"Mine>Roll"}));
  EXPECT_EQ(library_.Find("first")->node_def(0).name(), "node_of_Cumsum");
}

TEST_F(OverrideOpsTest, DynamicOpsComeWithDynamicArguments) {
  Add("function", {"Roll", "Abs"});
  tensorflow::tpu::TPUCompileMetadataProto metadata;
  metadata.add_args()->add_is_bounded_dynamic_dim(false);
  ASSERT_TRUE(ReplaceOpsOfDynamicSize(metadata, &library_).ok());
  EXPECT_EQ(OpsOf("function"), Ops({"Roll", "Abs"}));
  metadata.add_args()->add_is_bounded_dynamic_dim(true);
  ASSERT_TRUE(ReplaceOpsOfDynamicSize(metadata, &library_).ok());
  EXPECT_EQ(OpsOf("function"), Ops({"TpuExt>DynamicRoll", "Abs"}));
}

TEST_F(OverrideOpsTest, DynamicOpsComeWithOpsThatMakeDynamicSizes) {
  Add("function", {"Roll"});
  Add("other", {"XlaSetDynamicDimensionSize"});
  ASSERT_TRUE(ReplaceOpsOfDynamicSize({}, &library_).ok());
  EXPECT_EQ(OpsOf("function"), Ops({"TpuExt>DynamicRoll"}));
  EXPECT_EQ(OpsOf("other"), Ops({"XlaSetDynamicDimensionSize"}));
}

TEST_F(OverrideOpsTest, KernelOpsReplaceConvolutionsAndPools) {
  Add("function", {"Conv2D", "MaxPoolGrad", "MatMul"});
  ASSERT_TRUE(UseTensorFlowKernels(&library_).ok());
  EXPECT_EQ(OpsOf("function"), Ops({"TpuExt>KernelConv2D", "TpuExt>KernelMaxPoolGrad", "MatMul"}));
}

}  // namespace
}  // namespace tf_tpu_ext
