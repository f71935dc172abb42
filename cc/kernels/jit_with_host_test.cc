#include "cc/kernels/jit_with_host.h"

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "cc/ops/op_names.h"
#include "cc/program/traced_options.h"
#include "gtest/gtest.h"
#include "tensorflow/core/common_runtime/function_body.h"
#include "tensorflow/core/common_runtime/function_def_utils.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/function.pb.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/graph/graph.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::FunctionDef;
using tensorflow::FunctionDefHelper;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::Node;
using tensorflow::NodeDef;

class JitWithHostTest : public testing::Test {
 protected:
  JitWithHostTest() {
    // y = -x, and the other argument unchanged.
    original_ =
        FunctionDefHelper::Create("f", {"x: float", "n: int32"}, {"y: float", "same: int32"}, {},
                                  {{{"neg"}, "Neg", {"x"}, {{"T", tensorflow::DT_FLOAT}}}},
                                  {{"y", "neg:y:0"}, {"same", "n"}});
    (*original_.mutable_attr())["_XlaMustCompile"].set_b(true);
    (*original_.mutable_attr())["kept"].set_i(5);
    EXPECT_TRUE(library_.AddFunctionDef(original_).ok());
  }

  FunctionDef Made() {
    const absl::Status status = AddAsTpuComputation("f", "computation", &library_);
    EXPECT_TRUE(status.ok()) << status;
    return *library_.Find("computation");
  }

  static const Node* InputOf(const Node* node, int index = 0) {
    const Node* input = nullptr;
    EXPECT_TRUE(node->input_node(index, &input).ok());
    return input;
  }

  FunctionLibraryDefinition library_{tensorflow::OpRegistry::Global(),
                                     tensorflow::FunctionDefLibrary()};
  FunctionDef original_;
};

TEST_F(JitWithHostTest, ArgumentsAndResultsPassTheBordersOfAComputation) {
  Made();
  std::unique_ptr<tensorflow::FunctionBody> body;
  const absl::Status status = tensorflow::FunctionDefToBodyHelper(
      library_.FindRecord("computation"), tensorflow::AttrSlice(), &library_, &body);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(body->arg_nodes.size(), 2);
  ASSERT_EQ(body->ret_nodes.size(), 2);
  for (int i = 0; i < 2; ++i) {
    const Node* output = InputOf(body->ret_nodes[i]);
    EXPECT_EQ(output->type_string(), "TPUReplicatedOutput");
    const Node* made = InputOf(output);
    EXPECT_EQ(made->type_string(), "Identity");
    const Node* inside = InputOf(made);
    // The second argument is itself a result, but enters the computation all the same.
    if (i == 0) {
      EXPECT_EQ(inside->type_string(), "Neg");
      inside = InputOf(inside);
    }
    EXPECT_EQ(inside->type_string(), "TPUReplicatedInput");
    EXPECT_EQ(InputOf(inside), body->arg_nodes[i]);
  }
}

TEST_F(JitWithHostTest, EveryOpBetweenTheBordersBearsTheMark) {
  const FunctionDef made = Made();
  int marked = 0;
  for (const NodeDef& node : made.node_def()) {
    const bool is_border = absl::StartsWith(node.op(), "TPUReplicated");
    const auto mark = node.attr().find(kTpuReplicate);
    EXPECT_EQ(mark == node.attr().end(), is_border) << node.name();
    if (mark == node.attr().end()) continue;
    ++marked;
    EXPECT_EQ(mark->second.s(), "cluster") << node.name();
  }
  // Neg, the metadata, and an Identity for each result.
  EXPECT_EQ(marked, 4);
}

TEST_F(JitWithHostTest, TheComputationHasOneReplicaAndTheOptionsOfItsFunction) {
  NodeDef* options = original_.add_node_def();
  options->set_name("options");
  options->set_op("NoOp");
  (*options->mutable_attr())[kCompileOptionsMark].set_s("traced");
  ASSERT_TRUE(library_.ReplaceFunction("f", original_).ok());
  const FunctionDef made = Made();
  int found = 0;
  for (const NodeDef& node : made.node_def()) {
    if (node.op() != "TPUReplicateMetadata") continue;
    ++found;
    EXPECT_EQ(node.attr().at("num_replicas").i(), 1);
    EXPECT_EQ(node.attr().at(kCompileOptions).s(), "traced");
  }
  EXPECT_EQ(found, 1);
}

TEST_F(JitWithHostTest, IsNotCompiledOnceMoreByItself) {
  const FunctionDef made = Made();
  EXPECT_EQ(made.attr().count("_XlaMustCompile"), 0);
  EXPECT_EQ(made.attr().at("kept").i(), 5);
  // The function itself is unchanged.
  EXPECT_TRUE(tensorflow::FunctionDefsEqual(*library_.Find("f"), original_));
}

TEST_F(JitWithHostTest, SaysWhichFunctionIsMissing) {
  EXPECT_EQ(AddAsTpuComputation("g", "computation", &library_),
            absl::NotFoundError("There is no function g."));
  EXPECT_EQ(library_.Find("computation"), nullptr);
}

}  // namespace
}  // namespace tf_tpu_ext
