// For tests of batching: runs the batched program in XLA's interpreter and compares what it
// computes for each replica with the result of the replica's own program.
#ifndef TF_TPU_EXT_CC_COMPILER_REPLICAS_BATCHING_TESTING_H_
#define TF_TPU_EXT_CC_COMPILER_REPLICAS_BATCHING_TESTING_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/log/check.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cc/compiler/hlo/test_module.h"
#include "cc/compiler/replicas/batch_replicas.h"
#include "gtest/gtest.h"
#include "xla/hlo/evaluator/hlo_evaluator.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/hlo/transforms/expanders/optimization_barrier_expander.h"
#include "xla/literal.h"
#include "xla/service/batched_gather_scatter_normalizer.h"
#include "xla/shape.h"
#include "xla/shape_util.h"

namespace tf_tpu_ext {

inline constexpr int kReplicas = 3;

// Computations that a test's instructions may call.
inline constexpr char kReducers[] = R"(
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
)";

struct RuleCase {
  const char* name;
  // Parameter 0 is the same for all replicas. The root is `r`, and `result` begins with its type.
  const char* body;
  const char* result;
  // How often this opcode occurs in the entry computation of the batched program.
  xla::HloOpcode opcode;
  int count;
};

inline void PrintTo(const RuleCase& rule, std::ostream* out) { *out << rule.name; }

// Numbers that differ by parameter, replica and position.
inline xla::Literal Filled(const xla::Shape& shape, int seed) {
  xla::Literal literal = xla::Literal::CreateFromShape(shape);
  for (int64_t i = 0; i < xla::ShapeUtil::ElementsIn(shape); ++i) {
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

inline std::vector<xla::Literal> ArgumentsOf(const xla::HloModule& module, int replica) {
  std::vector<xla::Literal> arguments;
  for (const auto* parameter : module.entry_computation()->parameter_instructions()) {
    const int number = parameter->parameter_number();
    arguments.push_back(Filled(parameter->shape(), number == 0 ? 5 : 10 * number + replica));
  }
  return arguments;
}

inline std::vector<xla::Literal> Evaluate(const xla::HloModule& module,
                                          const std::vector<xla::Literal>& arguments) {
  std::vector<const xla::Literal*> pointers;
  for (const xla::Literal& argument : arguments) pointers.push_back(&argument);
  // The interpreter does not support batched gathers, nor barriers of tuples before 2.20. XLA's
  // compiler turns the former into plain gathers, and drops the latter.
  const std::unique_ptr<xla::HloModule> plain = module.Clone();
  CHECK_OK(xla::BatchedGatherScatterNormalizer().Run(plain.get()).status());
  CHECK_OK(xla::OptimizationBarrierExpander().Run(plain.get()).status());
  auto result = xla::HloEvaluator().Evaluate(*plain->entry_computation(), pointers);
  EXPECT_TRUE(result.ok()) << result.status() << module.ToString();
  if (!result.ok()) return {};
  return result->DecomposeTuple();
}

// The arrays of all replicas, one after another.
inline xla::Literal BatchOf(const std::vector<const xla::Literal*>& replicas) {
  xla::Literal batch = xla::Literal::CreateFromShape(
      xla::ShapeUtil::PrependMajorDimension(kReplicas, replicas[0]->shape()));
  auto* to = static_cast<char*>(batch.untyped_data());
  for (const xla::Literal* replica : replicas) {
    std::memcpy(to, replica->untyped_data(), replica->size_bytes());
    to += replica->size_bytes();
  }
  return batch;
}

inline std::unique_ptr<xla::HloModule> Step(const std::string& body, const std::string& type,
                                            const std::string& called = "") {
  return ParseModule(absl::StrCat(kReducers, called, "\nENTRY entry {\n", body, "\n  ROOT all = (",
                                  type, ") tuple(r)\n}\n"));
}

inline BatchedModule BatchAll(const xla::HloModule& module) {
  BatchOptions options;
  options.num_replicas = kReplicas;
  options.group_size = kReplicas;
  options.mirrored_parameters = {0};
  absl::StatusOr<BatchedModule> batched = BatchReplicas(module, options);
  CHECK_OK(batched.status());
  ExpectValid(batched->module.get());
  return *std::move(batched);
}

inline std::vector<xla::Literal> BatchedArguments(const xla::HloModule& module,
                                                  const BatchedModule& batched) {
  std::vector<std::vector<xla::Literal>> replicas;
  for (int j = 0; j < kReplicas; ++j) replicas.push_back(ArgumentsOf(module, j));
  std::vector<xla::Literal> arguments;
  for (size_t i = 0; i < replicas[0].size(); ++i) {
    if (!batched.batched_parameters[i]) {
      arguments.push_back(replicas[0][i].Clone());
      continue;
    }
    std::vector<const xla::Literal*> each;
    for (const auto& replica : replicas) each.push_back(&replica[i]);
    arguments.push_back(BatchOf(each));
  }
  return arguments;
}

inline void ExpectNear(const xla::Literal& expected, const xla::Literal& actual) {
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

// Checks that the batched program computes the same for each replica as the replica's own program.
inline void ExpectRuleHolds(const RuleCase& rule, const std::string& called = "") {
  const std::unique_ptr<xla::HloModule> module = Step(rule.body, rule.result, called);
  const BatchedModule batched = BatchAll(*module);
  EXPECT_EQ(CountOps(*batched.module->entry_computation(), rule.opcode), rule.count)
      << batched.module->ToString();
  const std::vector<xla::Literal> results =
      Evaluate(*batched.module, BatchedArguments(*module, batched));
  ASSERT_EQ(results.size(), 1u);
  ASSERT_TRUE(batched.batched_results[0]);
  std::vector<xla::Literal> replicas;
  std::vector<const xla::Literal*> each;
  for (int j = 0; j < kReplicas; ++j) {
    replicas.push_back(std::move(Evaluate(*module, ArgumentsOf(*module, j))[0]));
  }
  for (const xla::Literal& replica : replicas) each.push_back(&replica);
  ExpectNear(BatchOf(each), results[0]);
}

inline std::string NameOf(const ::testing::TestParamInfo<RuleCase>& info) {
  return info.param.name;
}

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_REPLICAS_BATCHING_TESTING_H_
