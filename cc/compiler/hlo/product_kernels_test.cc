#include "cc/compiler/hlo/product_kernels.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "cc/compiler/hlo/test_module.h"
#include "cc/program/kernel_call.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/layout_util.h"
#include "xla/literal.h"
#include "xla/xla_data.pb.h"

namespace tf_tpu_ext {
namespace {

using xla::HloInstruction;
using xla::HloOpcode;

std::string Product(absl::string_view result, absl::string_view lhs, absl::string_view rhs,
                    absl::string_view dimensions) {
  return absl::StrCat("HloModule product\nENTRY entry {\n  x = ", lhs, " parameter(0)\n  y = ", rhs,
                      " parameter(1)\n  ROOT product = ", result, " dot(x, y), ", dimensions,
                      "\n}\n");
}

// Small numbers: every sum is exact, in any order.
xla::Literal SmallNumbers(const xla::Shape& shape) {
  xla::Literal literal = xla::Literal::CreateFromShape(shape);
  int next = 0;
  EXPECT_TRUE(literal
                  .Populate<xla::bfloat16>([&](absl::Span<const int64_t>) {
                    return static_cast<xla::bfloat16>(static_cast<float>(++next % 3 - 1));
                  })
                  .ok());
  return literal;
}

std::vector<HloInstruction*> CallsOf(const xla::HloModule& module) {
  std::vector<HloInstruction*> calls;
  for (HloInstruction* instruction : module.entry_computation()->instructions()) {
    if (instruction->opcode() == HloOpcode::kCustomCall) calls.push_back(instruction);
  }
  return calls;
}

// What XLA's evaluator can compute, in the place of a kernel's call.
void ReplaceByProduct(HloInstruction* call) {
  const auto decoded = DecodeKernelCall(call->raw_backend_config_string());
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  bool adjoint_lhs = false, adjoint_rhs = false;
  ASSERT_TRUE(tensorflow::GetNodeAttr(decoded->node, "adj_x", &adjoint_lhs).ok());
  ASSERT_TRUE(tensorflow::GetNodeAttr(decoded->node, "adj_y", &adjoint_rhs).ok());
  xla::DotDimensionNumbers numbers;
  numbers.add_lhs_batch_dimensions(0);
  numbers.add_rhs_batch_dimensions(0);
  numbers.add_lhs_contracting_dimensions(adjoint_lhs ? 1 : 2);
  numbers.add_rhs_contracting_dimensions(adjoint_rhs ? 2 : 1);
  xla::PrecisionConfig precision;
  precision.mutable_operand_precision()->Resize(2, xla::PrecisionConfig::DEFAULT);
  ASSERT_TRUE(call->parent()
                  ->ReplaceWithNewInstruction(
                      call, HloInstruction::CreateDot(call->shape(), call->mutable_operand(0),
                                                      call->mutable_operand(1), numbers, precision))
                  .ok());
}

// Expects a call that computes the same, after the given number of copies of operands.
void ExpectCall(const std::string& text, int transposes) {
  const std::unique_ptr<xla::HloModule> module = ParseModule(text);
  EXPECT_EQ(CountProductsForKernels(*module), 1);
  const xla::Literal expected = ValueOf(*module, SmallNumbers);
  ASSERT_TRUE(UseKernelsForProducts(module.get()).ok());
  ExpectValid(module.get());
  const xla::HloComputation& entry = *module->entry_computation();
  EXPECT_EQ(CountOps(entry, HloOpcode::kDot), 0);
  EXPECT_EQ(CountOps(entry, HloOpcode::kTranspose), transposes);
  const std::vector<HloInstruction*> calls = CallsOf(*module);
  ASSERT_EQ(calls.size(), 1);
  EXPECT_EQ(calls[0]->custom_call_target(), kKernelTarget);
  for (const HloInstruction* operand : calls[0]->operands()) {
    EXPECT_TRUE(xla::LayoutUtil::IsMonotonicWithDim0Major(operand->shape().layout()));
  }
  ReplaceByProduct(calls[0]);
  EXPECT_EQ(ValueOf(*module, SmallNumbers), expected);
}

void ExpectNoCall(const std::string& text) {
  const std::unique_ptr<xla::HloModule> module = ParseModule(text);
  EXPECT_EQ(CountProductsForKernels(*module), 0);
  ASSERT_TRUE(UseKernelsForProducts(module.get()).ok());
  EXPECT_TRUE(CallsOf(*module).empty());
}

TEST(ProductKernelsTest, Matrices) {
  ExpectCall(Product("bf16[64,256]", "bf16[64,128]", "bf16[128,256]",
                     "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
             0);
}

TEST(ProductKernelsTest, TransposedMatricesAreNotCopied) {
  ExpectCall(Product("bf16[64,256]", "bf16[128,64]", "bf16[256,128]",
                     "lhs_contracting_dims={0}, rhs_contracting_dims={1}"),
             0);
}

TEST(ProductKernelsTest, Batches) {
  ExpectCall(Product("bf16[3,5,32,48]", "bf16[3,5,32,64]", "bf16[3,5,48,64]",
                     "lhs_batch_dims={0,1}, rhs_batch_dims={0,1}, "
                     "lhs_contracting_dims={3}, rhs_contracting_dims={3}"),
             0);
}

// The heads of an attention are between the dimensions of its matrices.
TEST(ProductKernelsTest, BatchesInTheMiddleAreMovedToTheFront) {
  ExpectCall(Product("bf16[3,4,32,48]", "bf16[3,32,4,64]", "bf16[3,48,4,64]",
                     "lhs_batch_dims={0,2}, rhs_batch_dims={0,2}, "
                     "lhs_contracting_dims={3}, rhs_contracting_dims={3}"),
             2);
}

TEST(ProductKernelsTest, SeveralFreeAndSummedDimensions) {
  ExpectCall(Product("bf16[6,50,8,10]", "bf16[6,50,8,16]", "bf16[8,16,8,10]",
                     "lhs_contracting_dims={2,3}, rhs_contracting_dims={0,1}"),
             0);
}

TEST(ProductKernelsTest, TheOrderOfSummedDimensionsIsThatInMemory) {
  ExpectCall(Product("bf16[100,90]", "bf16[100,8,16]", "bf16[8,16,90]",
                     "lhs_contracting_dims={2,1}, rhs_contracting_dims={1,0}"),
             0);
}

TEST(ProductKernelsTest, SummedDimensionsInDifferentOrdersAreCopied) {
  ExpectCall(Product("bf16[100,90]", "bf16[100,8,16]", "bf16[16,8,90]",
                     "lhs_contracting_dims={1,2}, rhs_contracting_dims={1,0}"),
             1);
}

TEST(ProductKernelsTest, AProductWithAVectorStays) {
  ExpectNoCall(Product("bf16[1024]", "bf16[1024]", "bf16[1024,1024]",
                       "lhs_contracting_dims={0}, rhs_contracting_dims={0}"));
}

TEST(ProductKernelsTest, ASmallProductStays) {
  ExpectNoCall(Product("bf16[64,64]", "bf16[64,64]", "bf16[64,64]",
                       "lhs_contracting_dims={1}, rhs_contracting_dims={0}"));
}

TEST(ProductKernelsTest, OtherTypesStay) {
  const char dimensions[] = "lhs_contracting_dims={1}, rhs_contracting_dims={0}";
  ExpectNoCall(Product("f32[128,128]", "f32[128,128]", "f32[128,128]", dimensions));
  ExpectNoCall(Product("f16[128,128]", "f16[128,128]", "f16[128,128]", dimensions));
  // A sum in float32 that is not rounded.
  ExpectNoCall(Product("f32[128,128]", "bf16[128,128]", "bf16[128,128]", dimensions));
}

TEST(ProductKernelsTest, AnAlgorithmThatTheUserChoseStays) {
  ExpectNoCall(
      Product("bf16[128,128]", "bf16[128,128]", "bf16[128,128]",
              "lhs_contracting_dims={1}, rhs_contracting_dims={0}, algorithm=dot_bf16_bf16_f32"));
}

TEST(ProductKernelsTest, ProductsOfUnknownSizeStay) {
  ExpectNoCall(Product("bf16[<=128,128]", "bf16[<=128,128]", "bf16[128,128]",
                       "lhs_contracting_dims={1}, rhs_contracting_dims={0}"));
}

}  // namespace
}  // namespace tf_tpu_ext
