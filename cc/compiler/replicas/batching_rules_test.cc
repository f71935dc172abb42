// Each rule, against XLA's interpreter: what the batched program computes for a replica is what the
// replica's own program computes.
#include "cc/compiler/replicas/batching_rules.h"

#include <cstring>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cc/compiler/hlo/test_module.h"
#include "cc/compiler/replicas/batch_replicas.h"
#include "gtest/gtest.h"
#include "xla/hlo/evaluator/hlo_evaluator.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/literal.h"
#include "xla/service/batched_gather_scatter_normalizer.h"
#include "xla/shape_util.h"

namespace tf_tpu_ext {
namespace {

using xla::HloOpcode;
using xla::Literal;
using xla::Shape;
using xla::ShapeUtil;

constexpr int kReplicas = 3;

constexpr char kCalled[] = R"(
HloModule step

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}

larger {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] maximum(a, b)
}

at_least {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=GE
}

before {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT
}

add_and_count {
  a = f32[] parameter(0)
  n = s32[] parameter(1)
  b = f32[] parameter(2)
  m = s32[] parameter(3)
  sum = f32[] add(a, b)
  count = s32[] add(n, m)
  ROOT r = (f32[], s32[]) tuple(sum, count)
}

twice {
  x = f32[4] parameter(0)
  ROOT r = f32[4] add(x, x)
}

negative {
  x = f32[4] parameter(0)
  ROOT r = f32[4] negate(x)
}

three_rounds {
  state = (s32[], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  three = s32[] constant(3)
  ROOT r = pred[] compare(i, three), direction=LT
}

// The second array comes to differ between replicas in the second round.
round {
  state = (s32[], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[4] get-tuple-element(state), index=1
  w = f32[4] get-tuple-element(state), index=2
  sum = f32[4] add(w, x)
  ROOT r = (s32[], f32[4], f32[4]) tuple(next, x, sum)
}

own_rounds {
  state = (s32[], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[4] get-tuple-element(state), index=1
  first = f32[1] slice(x), slice={[0:1]}
  f = f32[] reshape(first)
  zero = f32[] constant(0)
  own = pred[] compare(f, zero), direction=GT
  three = s32[] constant(3)
  some = pred[] compare(i, three), direction=LT
  ROOT r = pred[] and(own, some)
}

ENTRY entry {
)";

struct RuleCase {
  const char* name;
  // Parameter 0 is the same for all replicas; the root is `r`, with the type first.
  const char* body;
  const char* result;
  // How often this opcode is in the entry of the batched program.
  HloOpcode opcode;
  int count;
};

void PrintTo(const RuleCase& rule, std::ostream* out) { *out << rule.name; }

// Numbers that differ between parameters, replicas and places.
Literal Filled(const Shape& shape, int seed) {
  Literal literal = *Literal::Make(shape);
  for (int64_t i = 0; i < ShapeUtil::ElementsIn(shape); ++i) {
    const int64_t number = (seed * 31 + i * 7 + i * i) % 23;
    switch (shape.element_type()) {
      case xla::F32:
        literal.data<float>()[i] = static_cast<float>(number - 11) / 8;
        break;
      case xla::S32:
        literal.data<int32_t>()[i] = static_cast<int32_t>(number % 3);
        break;
      case xla::PRED:
        literal.data<bool>()[i] = number % 2 == 0;
        break;
      default:
        ADD_FAILURE() << "no numbers of this type: " << shape.ToString();
    }
  }
  return literal;
}

std::vector<Literal> ArgumentsOf(const xla::HloModule& module, int replica) {
  std::vector<Literal> arguments;
  for (const auto* parameter : module.entry_computation()->parameter_instructions()) {
    const int number = parameter->parameter_number();
    arguments.push_back(Filled(parameter->shape(), number == 0 ? 5 : 10 * number + replica));
  }
  return arguments;
}

std::vector<Literal> Evaluate(const xla::HloModule& module, const std::vector<Literal>& arguments) {
  std::vector<const Literal*> pointers;
  for (const Literal& argument : arguments) pointers.push_back(&argument);
  // The interpreter does not know batches of gathers, which XLA's compiler makes plain ones.
  const std::unique_ptr<xla::HloModule> plain = module.Clone();
  CHECK_OK(xla::BatchedGatherScatterNormalizer().Run(plain.get()).status());
  auto result = xla::HloEvaluator().Evaluate(*plain->entry_computation(), pointers);
  EXPECT_TRUE(result.ok()) << result.status() << module.ToString();
  if (!result.ok()) return {};
  return result->DecomposeTuple();
}

// The arrays of all replicas, one after the other.
Literal BatchOf(const std::vector<const Literal*>& replicas) {
  Literal batch = *Literal::Make(ShapeUtil::PrependMajorDimension(kReplicas, replicas[0]->shape()));
  auto* to = static_cast<char*>(batch.untyped_data());
  for (const Literal* replica : replicas) {
    std::memcpy(to, replica->untyped_data(), replica->size_bytes());
    to += replica->size_bytes();
  }
  return batch;
}

std::unique_ptr<xla::HloModule> Step(const std::string& body, const std::string& type) {
  return ParseModule(absl::StrCat(kCalled, body, "\n  ROOT all = (", type, ") tuple(r)\n}\n"));
}

BatchedModule BatchAll(const xla::HloModule& module) {
  BatchOptions options;
  options.num_replicas = kReplicas;
  options.group_size = kReplicas;
  options.mirrored_parameters = {0};
  absl::StatusOr<BatchedModule> batched = BatchReplicas(module, options);
  CHECK_OK(batched.status());
  ExpectValid(batched->module.get());
  return *std::move(batched);
}

std::vector<Literal> BatchedArguments(const xla::HloModule& module, const BatchedModule& batched) {
  std::vector<std::vector<Literal>> replicas;
  for (int j = 0; j < kReplicas; ++j) replicas.push_back(ArgumentsOf(module, j));
  std::vector<Literal> arguments;
  for (size_t i = 0; i < replicas[0].size(); ++i) {
    if (!batched.batched_parameters[i]) {
      arguments.push_back(replicas[0][i].Clone());
      continue;
    }
    std::vector<const Literal*> each;
    for (const auto& replica : replicas) each.push_back(&replica[i]);
    arguments.push_back(BatchOf(each));
  }
  return arguments;
}

void ExpectNear(const Literal& expected, const Literal& actual) {
  ASSERT_EQ(expected.shape().dimensions(), actual.shape().dimensions());
  ASSERT_EQ(expected.shape().element_type(), actual.shape().element_type());
  if (expected.shape().element_type() != xla::F32) {
    EXPECT_EQ(expected, actual);
    return;
  }
  for (int64_t i = 0; i < expected.element_count(); ++i) {
    EXPECT_NEAR(expected.data<float>()[i], actual.data<float>()[i], 1e-5) << "element " << i;
  }
}

class BatchingRuleTest : public ::testing::TestWithParam<RuleCase> {};

TEST_P(BatchingRuleTest, ComputesWhatEachReplicaDoes) {
  const RuleCase& rule = GetParam();
  const std::unique_ptr<xla::HloModule> module = Step(rule.body, rule.result);
  const BatchedModule batched = BatchAll(*module);
  EXPECT_EQ(CountOps(*batched.module->entry_computation(), rule.opcode), rule.count)
      << batched.module->ToString();
  const std::vector<Literal> results =
      Evaluate(*batched.module, BatchedArguments(*module, batched));
  ASSERT_EQ(results.size(), 1u);
  ASSERT_TRUE(batched.batched_results[0]);
  std::vector<Literal> replicas;
  std::vector<const Literal*> each;
  for (int j = 0; j < kReplicas; ++j) {
    replicas.push_back(std::move(Evaluate(*module, ArgumentsOf(*module, j))[0]));
  }
  for (const Literal& replica : replicas) each.push_back(&replica);
  ExpectNear(BatchOf(each), results[0]);
}

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
    {"DotOfOwnRowsAndWeights", R"(
  w = f32[3,4] parameter(0)
  x = f32[2,3] parameter(1)
  r = f32[2,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0})",
     "f32[2,4]", HloOpcode::kDot, 1},
    {"DotOfWeightsAndOwnColumns", R"(
  w = f32[5,2,3] parameter(0)
  x = f32[5,3,4] parameter(1)
  r = f32[5,2,4] dot(w, x), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1})",
     "f32[5,2,4]", HloOpcode::kDot, 1},
    {"DotWithBatchOfWeights", R"(
  w = f32[5,3,4] parameter(0)
  x = f32[5,2,3] parameter(1)
  r = f32[5,2,4] dot(x, w), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1})",
     "f32[5,2,4]", HloOpcode::kDot, 1},
    {"DotOfOwn", R"(
  w = f32[2] parameter(0)
  x = f32[5,2,3] parameter(1)
  y = f32[5,3,4] parameter(2)
  r = f32[5,2,4] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1})",
     "f32[5,2,4]", HloOpcode::kDot, 1},
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
    {"ConvolutionWithWeights", R"(
  w = f32[3,2,4] parameter(0)
  x = f32[2,5,2] parameter(1)
  r = f32[2,3,4] convolution(x, w), window={size=3}, dim_labels=b0f_0io->b0f)",
     "f32[2,3,4]", HloOpcode::kConvolution, 1},
    {"ConvolutionWithOwnFilters", R"(
  x = f32[2,5,2] parameter(0)
  w = f32[3,2,4] parameter(1)
  r = f32[2,3,4] convolution(x, w), window={size=3}, dim_labels=b0f_0io->b0f)",
     "f32[2,3,4]", HloOpcode::kConvolution, 3},
    {"Tuples", R"(
  w = f32[4] parameter(0)
  x = f32[4] parameter(1)
  inner = (f32[4], f32[4]) tuple(w, x)
  outer = (f32[4], (f32[4], f32[4])) tuple(w, inner)
  kept = (f32[4], (f32[4], f32[4])) opt-barrier(outer)
  again = (f32[4], f32[4]) get-tuple-element(kept), index=1
  r = f32[4] get-tuple-element(again), index=1)",
     "f32[4]", HloOpcode::kOptimizationBarrier, 1},
    {"Call", R"(
  w = f32[4] parameter(0)
  x = f32[4] parameter(1)
  y = f32[4] call(x), to_apply=twice
  z = f32[4] call(w), to_apply=twice
  r = f32[4] subtract(y, z))",
     "f32[4]", HloOpcode::kCall, 1},
    {"LoopThatMakesADifference", R"(
  w = f32[4] parameter(0)
  x = f32[4] parameter(1)
  zero = s32[] constant(0)
  begin = (s32[], f32[4], f32[4]) tuple(zero, x, w)
  end = (s32[], f32[4], f32[4]) while(begin), condition=three_rounds, body=round
  r = f32[4] get-tuple-element(end), index=2)",
     "f32[4]", HloOpcode::kWhile, 1},
    {"LoopOfOwnRounds", R"(
  w = f32[4] parameter(0)
  x = f32[4] parameter(1)
  zero = s32[] constant(0)
  begin = (s32[], f32[4], f32[4]) tuple(zero, x, w)
  end = (s32[], f32[4], f32[4]) while(begin), condition=own_rounds, body=round
  r = f32[4] get-tuple-element(end), index=2)",
     "f32[4]", HloOpcode::kWhile, 3},
    {"BranchOfAll", R"(
  p = pred[] parameter(0)
  x = f32[4] parameter(1)
  ones = f32[4] constant({1, 1, 1, 1})
  r = f32[4] conditional(p, x, ones), true_computation=twice, false_computation=negative)",
     "f32[4]", HloOpcode::kConditional, 1},
    {"OwnBranches", R"(
  w = f32[4] parameter(0)
  i = s32[] parameter(1)
  r = f32[4] conditional(i, w, w, w), branch_computations={twice, negative, twice})",
     "f32[4]", HloOpcode::kConditional, 3},
};

INSTANTIATE_TEST_SUITE_P(Rules, BatchingRuleTest, ::testing::ValuesIn(kRules),
                         [](const auto& info) { return std::string(info.param.name); });

class SumRuleTest : public ::testing::TestWithParam<RuleCase> {};

// The sum over the replicas of `r`, from XLA's interpreter and added up here.
TEST_P(SumRuleTest, ComputesTheSumOfWhatReplicasDo) {
  const RuleCase& rule = GetParam();
  const std::unique_ptr<xla::HloModule> alone = Step(rule.body, rule.result);
  std::vector<Literal> each;
  for (int j = 0; j < kReplicas; ++j) {
    each.push_back(std::move(Evaluate(*alone, ArgumentsOf(*alone, j))[0]));
  }
  Literal sum = each[0].Clone();
  for (int64_t i = 0; i < sum.element_count(); ++i) {
    for (int j = 1; j < kReplicas; ++j) sum.data<float>()[i] += each[j].data<float>()[i];
  }
  const std::unique_ptr<xla::HloModule> module = ParseModule(
      absl::StrCat(kCalled, rule.body, "\n  s = ", rule.result,
                   " all-reduce(r), to_apply=add\n  ROOT all = (", rule.result, ") tuple(s)\n}\n"));
  const BatchedModule batched = BatchAll(*module);
  EXPECT_EQ(CountOps(*batched.module->entry_computation(), rule.opcode), rule.count)
      << batched.module->ToString();
  EXPECT_FALSE(batched.batched_results[0]);
  const std::vector<Literal> results =
      Evaluate(*batched.module, BatchedArguments(*module, batched));
  ASSERT_EQ(results.size(), 1u);
  ExpectNear(sum, results[0]);
}

const RuleCase kSums[] = {
    {"OfOwnArrays", R"(
  w = f32[4] parameter(0)
  r = f32[4] parameter(1))",
     "f32[4]", HloOpcode::kAdd, 2},
    {"OfOneArray", R"(
  w = f32[4] parameter(0)
  r = f32[4] negate(w))",
     "f32[4]", HloOpcode::kAdd, 2},
    {"OfProducts", R"(
  w = f32[2] parameter(0)
  x = f32[5,2,3] parameter(1)
  y = f32[5,2,4] parameter(2)
  r = f32[5,3,4] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_contracting_dims={1})",
     "f32[5,3,4]", HloOpcode::kAdd, 0},
    {"OfScaledProducts", R"(
  w = f32[] parameter(0)
  x = f32[2,3] parameter(1)
  y = f32[2,4] parameter(2)
  p = f32[3,4] dot(x, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  t = f32[4,3] transpose(p), dimensions={1,0}
  n = f32[4,3] negate(t)
  rate = f32[4,3] broadcast(w), dimensions={}
  scaled = f32[4,3] multiply(rate, n)
  two = f32[] constant(2)
  twos = f32[4,3] broadcast(two), dimensions={}
  r = f32[4,3] divide(scaled, twos))",
     "f32[4,3]", HloOpcode::kAdd, 0},
    {"OfProductsByOwnFactors", R"(
  w = f32[] parameter(0)
  x = f32[2,3] parameter(1)
  y = f32[2,4] parameter(2)
  f = f32[3,4] parameter(3)
  p = f32[3,4] dot(x, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  r = f32[3,4] multiply(p, f))",
     "f32[3,4]", HloOpcode::kAdd, 2},
    {"OfReductions", R"(
  w = f32[] parameter(0)
  x = f32[2,3] parameter(1)
  zero = f32[] constant(0)
  r = f32[3] reduce(x, zero), dimensions={0}, to_apply=add)",
     "f32[3]", HloOpcode::kAdd, 0},
    {"OfReductionsFromANumber", R"(
  w = f32[] parameter(0)
  x = f32[2,3] parameter(1)
  r = f32[3] reduce(x, w), dimensions={0}, to_apply=add)",
     "f32[3]", HloOpcode::kAdd, 2},
    {"OfLargest", R"(
  w = f32[] parameter(0)
  x = f32[2,3] parameter(1)
  zero = f32[] constant(0)
  r = f32[3] reduce(x, zero), dimensions={0}, to_apply=larger)",
     "f32[3]", HloOpcode::kAdd, 2},
    {"OfScatters", R"(
  w = f32[] parameter(0)
  i = s32[5,1] parameter(1)
  x = f32[5,4] parameter(2)
  zero = f32[] constant(0)
  zeros = f32[3,4] broadcast(zero), dimensions={}
  r = f32[3,4] scatter(zeros, i, x), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add)",
     "f32[3,4]", HloOpcode::kScatter, 1},
};

INSTANTIATE_TEST_SUITE_P(Rules, SumRuleTest, ::testing::ValuesIn(kSums),
                         [](const auto& info) { return std::string(info.param.name); });

// XLA's interpreter clamps to arrays only.
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

TEST(BatchingRulesTest, NewDimensionsComeFirst) {
  EXPECT_EQ(ShiftedByOne({2, 0}), (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(ShiftedAndPrepended({2, 0}), (std::vector<int64_t>{0, 3, 1}));
  EXPECT_EQ(ShiftedAndPrepended({}), (std::vector<int64_t>{0}));
}

}  // namespace
}  // namespace tf_tpu_ext
