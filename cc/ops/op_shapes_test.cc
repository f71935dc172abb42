// Tests the registrations of our ops: shapes, statefulness, and the overrides of updates.
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "cc/ops/all_to_all_shapes.h"
#include "cc/ops/host_update_ops.h"
#include "cc/ops/op_names.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/public/version.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::AddNodeAttr;
using tensorflow::DataType;
using tensorflow::NodeDef;
using tensorflow::OpRegistrationData;
using tensorflow::PartialTensorShape;

const OpRegistrationData* Find(const std::string& op) {
  return tensorflow::OpRegistry::Global()->LookUp(op);
}

// The shapes that the op's function infers for its outputs, as text.
std::vector<std::string> OutputShapes(NodeDef node, const std::vector<PartialTensorShape>& inputs) {
  const OpRegistrationData* op = Find(node.op());
  EXPECT_NE(op, nullptr) << node.op();
  tensorflow::AddDefaultsToNodeDef(op->op_def, &node);
  tensorflow::shape_inference::InferenceContext context(
      TF_GRAPH_DEF_VERSION, tensorflow::AttrSlice(node), op->op_def, inputs, {}, {}, {});
  EXPECT_TRUE(context.construction_status().ok()) << context.construction_status();
  const absl::Status status = context.Run(op->shape_inference_fn);
  EXPECT_TRUE(status.ok()) << status;
  std::vector<std::string> shapes;
  for (int i = 0; i < context.num_outputs(); ++i) {
    shapes.push_back(context.DebugString(context.output(i)));
  }
  return shapes;
}

class HostCallShapesTest : public ::testing::TestWithParam<const char*> {
 protected:
  static NodeDef Define(const std::vector<PartialTensorShape>& shapes) {
    NodeDef node;
    node.set_name("call");
    node.set_op(GetParam());
    AddNodeAttr("Tinputs", std::vector<DataType>{tensorflow::DT_FLOAT}, &node);
    AddNodeAttr("Toutputs", std::vector<DataType>(2, tensorflow::DT_FLOAT), &node);
    AddNodeAttr("shapes", shapes, &node);
    for (const char* text : {"function", "library", "send_key", "recv_key"}) {
      AddNodeAttr(text, "", &node);
    }
    return node;
  }
};

TEST_P(HostCallShapesTest, AreThoseOfTheAttribute) {
  EXPECT_EQ(OutputShapes(Define({PartialTensorShape({2, -1}), PartialTensorShape({})}),
                         {PartialTensorShape({7})}),
            (std::vector<std::string>{"[2,?]", "[]"}));
}

TEST_P(HostCallShapesTest, AreUnknownWhereTheAttributeEnds) {
  EXPECT_EQ(OutputShapes(Define({PartialTensorShape({3})}), {PartialTensorShape({7})}),
            (std::vector<std::string>{"[3]", "?"}));
  EXPECT_EQ(OutputShapes(Define({}), {PartialTensorShape({7})}),
            (std::vector<std::string>{"?", "?"}));
}

INSTANTIATE_TEST_SUITE_P(Ops, HostCallShapesTest, ::testing::Values(kHostCallOp, kHostComputeOp));

TEST(OpsTest, HostHandleIsAScalar) {
  NodeDef node;
  node.set_name("handle");
  node.set_op(kHostHandleOp);
  EXPECT_EQ(OutputShapes(node, {PartialTensorShape({})}), std::vector<std::string>{"[]"});
}

TEST(OpsTest, WhatHasEffectsIsStateful) {
  for (const char* op : {kHostCallOp, kHostComputeOp, "TpuExt>HostBarrier"}) {
    ASSERT_NE(Find(op), nullptr) << op;
    EXPECT_TRUE(Find(op)->op_def.is_stateful()) << op;
  }
}

class HostUpdatesTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { RegisterHostUpdates(); }
};

TEST_F(HostUpdatesTest, OverridesLookLikeTheOriginals) {
  for (const char* update : {"AssignAddVariableOp", "ResourceApplyAdam", "ResourceScatterUpdate"}) {
    ASSERT_TRUE(IsHostUpdate(update));
    const OpRegistrationData* original = Find(update);
    const OpRegistrationData* override = Find(HostUpdateOverride(update));
    ASSERT_NE(override, nullptr) << update;
    ASSERT_EQ(override->op_def.input_arg_size(), original->op_def.input_arg_size());
    for (int i = 0; i < original->op_def.input_arg_size(); ++i) {
      EXPECT_EQ(override->op_def.input_arg(i).SerializeAsString(),
                original->op_def.input_arg(i).SerializeAsString());
    }
    EXPECT_EQ(override->op_def.attr_size(), original->op_def.attr_size());
    EXPECT_TRUE(override->op_def.is_stateful());
    EXPECT_TRUE(static_cast<bool>(override->shape_inference_fn));
  }
}

TEST_F(HostUpdatesTest, NamesLeadThereAndBack) {
  EXPECT_EQ(OriginalOfHostUpdate(HostUpdateOverride("AssignSubVariableOp")), "AssignSubVariableOp");
  EXPECT_EQ(OriginalOfHostUpdate("AssignSubVariableOp"), "");
  EXPECT_EQ(OriginalOfHostUpdate(kHostCallOp), "");
  EXPECT_FALSE(IsHostUpdate("ReadVariableOp"));
  EXPECT_FALSE(IsHostUpdate(HostUpdateOverride("AssignSubVariableOp")));
}

class AllToAllShapesTest : public ::testing::Test {
 protected:
  static absl::Status Check(const PartialTensorShape& input, const PartialTensorShape& groups,
                            int concat_dimension, int split_dimension, int split_count) {
    NodeDef node;
    node.set_name("exchange");
    node.set_op("AllToAll");
    AddNodeAttr("T", tensorflow::DT_FLOAT, &node);
    AddNodeAttr("concat_dimension", concat_dimension, &node);
    AddNodeAttr("split_dimension", split_dimension, &node);
    AddNodeAttr("split_count", split_count, &node);
    return CheckAllToAllShapes(node, {input, groups});
  }
};

TEST_F(AllToAllShapesTest, TakesWhatDivides) {
  EXPECT_TRUE(Check({4, 6}, {1, 2}, 0, 1, 2).ok());
  EXPECT_TRUE(Check({4, 6}, {2, 2}, 1, 1, 2).ok());
  EXPECT_TRUE(Check({4, 6}, {1, 1}, 0, 0, 1).ok());
}

TEST_F(AllToAllShapesTest, SaysWhatDoesNot) {
  for (int concat_dimension : {0, 1}) {
    const absl::Status status = Check({4, 5}, {1, 2}, concat_dimension, 1, 2);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "split_count")) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "the number of replicas in a group")) << status;
  }
  EXPECT_FALSE(Check({4, 6}, {1, 2}, 0, 2, 2).ok());   // no such dimension
  EXPECT_FALSE(Check({4, 6}, {1, 2}, -1, 1, 2).ok());  // no such dimension
  EXPECT_FALSE(Check({4, 6}, {1, 3}, 0, 1, 2).ok());   // groups of a different size
}

}  // namespace
}  // namespace tf_tpu_ext
