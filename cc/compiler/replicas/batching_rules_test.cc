// Tests the rules of instructions that keep, move, select or combine elements.
#include "cc/compiler/replicas/batching_rules.h"

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cc/compiler/replicas/batch_replicas.h"
#include "cc/compiler/replicas/batching_testing.h"
#include "cc/program/random_bits.h"
#include "gtest/gtest.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/hlo/ir/hlo_opcode.h"

namespace tf_tpu_ext {
namespace {

using xla::HloOpcode;

class BatchingRuleTest : public ::testing::TestWithParam<RuleCase> {};

TEST_P(BatchingRuleTest, ComputesWhatEachReplicaDoes) { ExpectRuleHolds(GetParam()); }

const RuleCase kRules[] = {
    {"ElementwiseWithMirrored", R"(
  w = f32[2,3] parameter(0)
  x = f32[2,3] parameter(1)
  y = f32[2,3] tanh(x)
  r = f32[2,3] multiply(w, y))",
     "f32[2,3]", HloOpcode::kMultiply, 1},
    {"SelectByOnePredicateAReplica", R"(
  w = f32[2,3] parameter(0)
  x = f32[2,3] parameter(1)
  p = pred[] parameter(2)
  r = f32[2,3] select(p, w, x))",
     "f32[2,3]", HloOpcode::kSelect, 1},
    {"ClampToMirrored", R"(
  low = f32[2,3] parameter(0)
  x = f32[2,3] parameter(1)
  high = f32[2,3] parameter(2)
  r = f32[2,3] clamp(low, x, high))",
     "f32[2,3]", HloOpcode::kClamp, 1},
    {"CompareAndConvert", R"(
  w = f32[4] parameter(0)
  x = f32[4] parameter(1)
  p = pred[4] compare(w, x), direction=LT
  r = f32[4] convert(p))",
     "f32[4]", HloOpcode::kCompare, 1},
    {"Broadcast", R"(
  w = f32[2] parameter(0)
  x = f32[2] parameter(1)
  r = f32[3,2,4] broadcast(x), dimensions={1})",
     "f32[3,2,4]", HloOpcode::kBroadcast, 1},
    {"Reshape", R"(
  w = f32[2] parameter(0)
  x = f32[2,6] parameter(1)
  r = f32[3,4] reshape(x))",
     "f32[3,4]", HloOpcode::kReshape, 1},
    {"BitcastConvert", R"(
  w = f32[2] parameter(0)
  x = f32[2,6] parameter(1)
  r = s32[2,6] bitcast-convert(x))",
     "s32[2,6]", HloOpcode::kBitcastConvert, 1},
    {"Transpose", R"(
  w = f32[2] parameter(0)
  x = f32[2,3,4] parameter(1)
  r = f32[4,2,3] transpose(x), dimensions={2,0,1})",
     "f32[4,2,3]", HloOpcode::kTranspose, 1},
    {"ConcatenateWithMirrored", R"(
  w = f32[2,1] parameter(0)
  x = f32[2,3] parameter(1)
  r = f32[2,4] concatenate(w, x), dimensions={1})",
     "f32[2,4]", HloOpcode::kConcatenate, 1},
    {"Reverse", R"(
  w = f32[2] parameter(0)
  x = f32[2,3] parameter(1)
  r = f32[2,3] reverse(x), dimensions={1})",
     "f32[2,3]", HloOpcode::kReverse, 1},
    {"Slice", R"(
  w = f32[2] parameter(0)
  x = f32[5,6] parameter(1)
  r = f32[2,3] slice(x), slice={[1:3], [0:6:2]})",
     "f32[2,3]", HloOpcode::kSlice, 1},
    {"Pad", R"(
  w = f32[] parameter(0)
  x = f32[2,3] parameter(1)
  r = f32[5,4] pad(x, w), padding=1_1_1x0_1)",
     "f32[5,4]", HloOpcode::kPad, 1},
    {"PadWithOwnNumbers", R"(
  w = f32[] parameter(0)
  x = f32[2,3] parameter(1)
  n = f32[] parameter(2)
  r = f32[3,3] pad(x, n), padding=1_0x0_0)",
     "f32[3,3]", HloOpcode::kPad, 3},
    {"DynamicSlice", R"(
  i = s32[] parameter(0)
  x = f32[4,3] parameter(1)
  zero = s32[] constant(0)
  r = f32[2,3] dynamic-slice(x, i, zero), dynamic_slice_sizes={2,3})",
     "f32[2,3]", HloOpcode::kDynamicSlice, 1},
    {"DynamicSliceAtOwnPlaces", R"(
  w = f32[4,3] parameter(0)
  i = s32[] parameter(1)
  zero = s32[] constant(0)
  r = f32[2,3] dynamic-slice(w, i, zero), dynamic_slice_sizes={2,3})",
     "f32[2,3]", HloOpcode::kDynamicSlice, 3},
    {"DynamicUpdateSliceOfMirrored", R"(
  w = f32[4,3] parameter(0)
  x = f32[1,3] parameter(1)
  zero = s32[] constant(0)
  two = s32[] constant(2)
  r = f32[4,3] dynamic-update-slice(w, x, two, zero))",
     "f32[4,3]", HloOpcode::kDynamicUpdateSlice, 1},
    {"GatherFromMirrored", R"(
  w = f32[3,4] parameter(0)
  i = s32[5] parameter(1)
  r = f32[5,4] gather(w, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,4})",
     "f32[5,4]", HloOpcode::kGather, 1},
    {"GatherAtMirrored", R"(
  i = s32[5] parameter(0)
  x = f32[3,4] parameter(1)
  r = f32[5,4] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,4})",
     "f32[5,4]", HloOpcode::kGather, 1},
    {"GatherOfOwn", R"(
  w = f32[2] parameter(0)
  x = f32[3,4] parameter(1)
  i = s32[5] parameter(2)
  r = f32[5,4] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,4})",
     "f32[5,4]", HloOpcode::kGather, 1},
    {"ScatterOfOwn", R"(
  w = f32[3,4] parameter(0)
  i = s32[5,1] parameter(1)
  x = f32[5,4] parameter(2)
  r = f32[3,4] scatter(w, i, x), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add)",
     "f32[3,4]", HloOpcode::kScatter, 3},
    {"Reduce", R"(
  w = f32[] parameter(0)
  x = f32[2,3,4] parameter(1)
  r = f32[3] reduce(x, w), dimensions={0,2}, to_apply=add)",
     "f32[3]", HloOpcode::kReduce, 1},
    {"ReduceFromOwnNumbers", R"(
  w = f32[] parameter(0)
  x = f32[2,3] parameter(1)
  n = f32[] parameter(2)
  r = f32[3] reduce(x, n), dimensions={0}, to_apply=add)",
     "f32[3]", HloOpcode::kReduce, 3},
    {"ReduceTwoArrays", R"(
  w = f32[] parameter(0)
  x = f32[2,3] parameter(1)
  n = s32[2,3] parameter(2)
  zero = s32[] constant(0)
  both = (f32[3], s32[3]) reduce(x, n, w, zero), dimensions={0}, to_apply=add_and_count
  sum = f32[3] get-tuple-element(both), index=0
  count = s32[3] get-tuple-element(both), index=1
  counts = f32[3] convert(count)
  r = f32[3] add(sum, counts))",
     "f32[3]", HloOpcode::kReduce, 1},
    {"ReduceWindow", R"(
  w = f32[] parameter(0)
  x = f32[2,6] parameter(1)
  r = f32[2,3] reduce-window(x, w), window={size=1x2 stride=1x2}, to_apply=larger)",
     "f32[2,3]", HloOpcode::kReduceWindow, 1},
    {"SelectAndScatter", R"(
  w = f32[] parameter(0)
  x = f32[2,6] parameter(1)
  y = f32[2,3] parameter(2)
  r = f32[2,6] select-and-scatter(x, y, w), window={size=1x2 stride=1x2}, select=at_least, scatter=add)",
     "f32[2,6]", HloOpcode::kSelectAndScatter, 1},
    {"SortWithMirroredValues", R"(
  n = s32[2,6] parameter(0)
  x = f32[2,6] parameter(1)
  both = (f32[2,6], s32[2,6]) sort(x, n), dimensions={1}, is_stable=true, to_apply=before
  r = s32[2,6] get-tuple-element(both), index=1)",
     "s32[2,6]", HloOpcode::kSort, 1},
};

INSTANTIATE_TEST_SUITE_P(Rules, BatchingRuleTest, ::testing::ValuesIn(kRules), NameOf);

// XLA's interpreter supports only arrays as a clamp's bounds.
TEST(BatchingRulesTest, ScalarBoundsDoNotMix) {
  for (const bool own : {false, true}) {
    const std::unique_ptr<xla::HloModule> module = Step(
        absl::StrCat("  low = f32[] parameter(0)\n  x = f32[2,3] parameter(1)\n  high = f32[] ",
                     own ? "parameter(2)" : "constant(1)", "\n  r = f32[2,3] clamp(low, x, high)"),
        "f32[2,3]");
    const BatchedModule batched = BatchAll(*module);
    const xla::HloInstruction* clamp =
        batched.module->entry_computation()->root_instruction()->operand(0);
    ASSERT_EQ(clamp->opcode(), HloOpcode::kClamp);
    const size_t rank = own ? 3 : 0;
    EXPECT_EQ(clamp->operand(0)->shape().dimensions().size(), rank);
    EXPECT_EQ(clamp->operand(2)->shape().dimensions().size(), rank);
  }
}

TEST(BatchingRulesTest, OneCallMakesTheRandomBitsOfAllReplicas) {
  const std::unique_ptr<xla::HloModule> module =
      Step(absl::StrCat("  state = u64[3] parameter(0)\n  x = u64[3] parameter(1)\n",
                        "  r = u32[8,16] custom-call(x), api_version=API_VERSION_TYPED_FFI, ",
                        "custom_call_target=\"", kRandomBitsTarget, "\""),
           "u32[8,16]");
  const BatchedModule batched = BatchAll(*module);
  const xla::HloInstruction* call =
      batched.module->entry_computation()->root_instruction()->operand(0);
  ASSERT_TRUE(call->IsCustomCall(kRandomBitsTarget));
  EXPECT_EQ(call->shape().dimensions().size(), 3);
  EXPECT_EQ(call->operand(0)->shape().dimensions().size(), 2);
}

TEST(BatchingRulesTest, NewDimensionsComeFirst) {
  EXPECT_EQ(ShiftedByOne({2, 0}), (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(ShiftedAndPrepended({2, 0}), (std::vector<int64_t>{0, 3, 1}));
  EXPECT_EQ(ShiftedAndPrepended({}), (std::vector<int64_t>{0}));
}

}  // namespace
}  // namespace tf_tpu_ext
