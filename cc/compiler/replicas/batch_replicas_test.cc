#include "cc/compiler/replicas/batch_replicas.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cc/compiler/hlo/collective_patterns.h"
#include "cc/compiler/hlo/module.h"
#include "cc/compiler/hlo/test_module.h"
#include "cc/program/transfer_call.h"
#include "gtest/gtest.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/hlo/ir/hlo_opcode.h"

namespace tf_tpu_ext {
namespace {

using xla::HloOpcode;

constexpr int kSixReplicas = 6;
constexpr int kGroup = 3;

constexpr char kSum[] = R"(
HloModule step

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}

difference {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] subtract(a, b)
}

ENTRY entry {
)";

// Batches the program of one replica, whose parameter 0 is mirrored and updated by result 0.
absl::StatusOr<BatchedModule> BatchText(const std::string& entry, int group_size = kGroup) {
  const std::unique_ptr<xla::HloModule> module = ParseModule(absl::StrCat(kSum, entry, "}\n"));
  BatchOptions options;
  options.num_replicas = kSixReplicas;
  options.group_size = group_size;
  options.mirrored_parameters = {0};
  options.updated_parameters = {{0, 0}};
  absl::StatusOr<BatchedModule> batched = BatchReplicas(*module, options);
  if (batched.ok()) ExpectValid(batched->module.get());
  return batched;
}

void ExpectRefused(const absl::StatusOr<BatchedModule>& batched, const std::string& why) {
  EXPECT_EQ(batched.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_TRUE(absl::StrContains(batched.status().message(), why)) << batched.status();
}

int Count(const BatchedModule& batched, HloOpcode opcode) {
  return CountOps(*batched.module->entry_computation(), opcode);
}

std::vector<int64_t> ResultShape(const BatchedModule& batched, int result) {
  const auto dimensions = batched.module->result_shape().tuple_shapes(result).dimensions();
  return {dimensions.begin(), dimensions.end()};
}

const xla::HloInstruction* Only(const BatchedModule& batched, HloOpcode opcode) {
  EXPECT_EQ(Count(batched, opcode), 1);
  for (const auto* instruction : batched.module->entry_computation()->instructions()) {
    if (instruction->opcode() == opcode) return instruction;
  }
  return nullptr;
}

TEST(BatchReplicasTest, OneProductServesAllRows) {
  auto batched = BatchText(R"(
  weights = f32[4,5] parameter(0)
  rows = f32[2,4] parameter(1)
  product = f32[2,5] dot(rows, weights), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT all = (f32[4,5], f32[2,5]) tuple(weights, product)
)");
  ASSERT_TRUE(batched.ok()) << batched.status();
  EXPECT_EQ(batched->batched_parameters, (std::vector<bool>{false, true}));
  EXPECT_EQ(batched->batched_results, (std::vector<bool>{false, true}));
  EXPECT_EQ(Count(*batched, HloOpcode::kDot), 1);
  EXPECT_EQ(ResultShape(*batched, 0), (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(ResultShape(*batched, 1), (std::vector<int64_t>{kGroup, 2, 5}));
  // As XLA's compiler receives it.
  auto compiled = ToModule(ToComputation(*batched->module));
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_EQ((*compiled)->result_shape(), batched->module->result_shape());
}

TEST(BatchReplicasTest, TheSumOfProductsIsOneProduct) {
  auto batched = BatchText(R"(
  weights = f32[4,5] parameter(0)
  rows = f32[2,4] parameter(1)
  errors = f32[2,5] parameter(2)
  columns = f32[4,2] transpose(rows), dimensions={1,0}
  gradient = f32[4,5] dot(columns, errors), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  sum = f32[4,5] all-reduce(gradient), to_apply=sum
  next = f32[4,5] subtract(weights, sum)
  ROOT all = (f32[4,5]) tuple(next)
)");
  ASSERT_TRUE(batched.ok()) << batched.status();
  EXPECT_EQ(batched->batched_results, (std::vector<bool>{false}));
  EXPECT_EQ(Count(*batched, HloOpcode::kDot), 1);
  // The sum remains between the groups.
  const xla::HloInstruction* sum = Only(*batched, HloOpcode::kAllReduce);
  EXPECT_TRUE(MeetsAllReplicas(*sum, kSixReplicas / kGroup));
  EXPECT_EQ(sum->shape().dimensions().size(), 2u);
}

TEST(BatchReplicasTest, AVariableThatComesToDifferIsBatched) {
  auto batched = BatchText(R"(
  state = f32[4] parameter(0)
  data = f32[4] parameter(1)
  next = f32[4] add(state, data)
  ROOT all = (f32[4]) tuple(next)
)");
  ASSERT_TRUE(batched.ok()) << batched.status();
  EXPECT_EQ(batched->batched_parameters, (std::vector<bool>{true, true}));
  EXPECT_EQ(batched->batched_results, (std::vector<bool>{true}));
}

TEST(BatchReplicasTest, ANumberIsMirroredIfThatKeepsAVariableSo) {
  auto batched = BatchText(R"(
  weights = f32[4] parameter(0)
  rate = f32[] parameter(1)
  other = f32[] parameter(2)
  others = f32[4] broadcast(other), dimensions={}
  scaled = f32[4] multiply(weights, others)
  sum = f32[4] all-reduce(scaled), to_apply=sum
  rates = f32[4] broadcast(rate), dimensions={}
  step = f32[4] multiply(sum, rates)
  next = f32[4] subtract(weights, step)
  ROOT all = (f32[4], f32[]) tuple(next, other)
)");
  ASSERT_TRUE(batched.ok()) << batched.status();
  EXPECT_FALSE(batched->batched_parameters[0]);
  EXPECT_FALSE(batched->batched_parameters[1]);
}

TEST(BatchReplicasTest, ReplicasKnowTheirNumbers) {
  const std::string entry = R"(
  weights = f32[4] parameter(0)
  number = u32[] replica-id()
  ROOT all = (f32[4], u32[]) tuple(weights, number)
)";
  auto groups = BatchText(entry);
  ASSERT_TRUE(groups.ok()) << groups.status();
  EXPECT_EQ(ResultShape(*groups, 1), (std::vector<int64_t>{kGroup}));
  // The number of the group times its size, plus the position in the group.
  const xla::HloInstruction* sum = Only(*groups, HloOpcode::kAdd);
  EXPECT_EQ(sum->operand(1)->opcode(), HloOpcode::kIota);
  const xla::HloInstruction* first = Only(*groups, HloOpcode::kMultiply);
  EXPECT_EQ(first->operand(0)->opcode(), HloOpcode::kReplicaId);
  EXPECT_TRUE(first->operand(1)->literal().IsAll(kGroup));
  auto one_group = BatchText(entry, kSixReplicas);
  ASSERT_TRUE(one_group.ok()) << one_group.status();
  EXPECT_EQ(Count(*one_group, HloOpcode::kReplicaId), 0);
}

constexpr char kFirst[] = R"(
  state = f32[4] parameter(0)
  data = f32[4] parameter(1)
  row = f32[1,4] reshape(data)
  rows = f32[6,4] concatenate(row, row, row, row, row, row), dimensions={0}
  sent = f32[6,4] all-to-all(rows), dimensions={0}, replica_groups={{0,1,2,3,4,5}}
  first = f32[1,4] slice(sent), slice={[0:1], [0:4]}
  value = f32[4] reshape(first)
  ROOT all = (f32[4]) tuple(value)
)";

TEST(BatchReplicasTest, TheFirstReplicasValueIsOneForAll) {
  auto groups = BatchText(kFirst);
  ASSERT_TRUE(groups.ok()) << groups.status();
  EXPECT_EQ(groups->batched_results, (std::vector<bool>{false}));
  const xla::HloInstruction* sent = Only(*groups, HloOpcode::kAllToAll);
  EXPECT_TRUE(MeetsAllReplicas(*sent, kSixReplicas / kGroup));
  EXPECT_EQ(sent->operand(0)->operand_count(), kSixReplicas / kGroup);
  auto one_group = BatchText(kFirst, kSixReplicas);
  ASSERT_TRUE(one_group.ok()) << one_group.status();
  EXPECT_EQ(Count(*one_group, HloOpcode::kAllToAll), 0);
}

// A batch from the infeed goes in and its sum to the outfeed, one replica after another.
TEST(BatchReplicasTest, EachReplicaHasItsFeeds) {
  TransferCall receive, send;
  receive.op = "InfeedDequeue";
  receive.receive = kInfeedName;
  send.op = "OutfeedEnqueue";
  send.send = kOutfeedName;
  const std::unique_ptr<xla::HloModule> module =
      ParseModule(absl::StrCat(kSum, R"(
  weights = f32[4] parameter(0)
  begin = token[] after-all()
  fed = (f32[4], token[]) custom-call(begin), custom_call_target=")",
                               kTransferTarget,
                               R"(", custom_call_has_side_effect=true
  data = f32[4] get-tuple-element(fed), index=0
  between = token[] get-tuple-element(fed), index=1
  sum = f32[4] all-reduce(data), to_apply=sum
  sent = (token[]) custom-call(data, between), custom_call_target=")",
                               kTransferTarget,
                               R"(", custom_call_has_side_effect=true
  ROOT all = (f32[4]) tuple(sum)
}
)"));
  Find(*module, "fed")->set_raw_backend_config_string(Encode(receive));
  Find(*module, "sent")->set_raw_backend_config_string(Encode(send));
  BatchOptions options;
  options.num_replicas = kSixReplicas;
  options.group_size = kGroup;
  options.mirrored_parameters = {0};
  auto batched = BatchReplicas(*module, options);
  ASSERT_TRUE(batched.ok()) << batched.status();
  ExpectValid(batched->module.get());
  int received = 0, sent = 0;
  for (const auto* call : batched->module->entry_computation()->MakeInstructionPostOrder()) {
    if (!call->IsCustomCall(kTransferTarget)) continue;
    auto transfer = DecodeTransferCall(call->raw_backend_config_string());
    ASSERT_TRUE(transfer.ok()) << transfer.status();
    EXPECT_EQ(transfer->member, transfer->is_infeed() ? received++ : sent++);
    EXPECT_TRUE(call->HasSideEffect());
  }
  EXPECT_EQ(received, kGroup);
  EXPECT_EQ(sent, kGroup);
}

TEST(BatchReplicasTest, SumsOfSomeReplicasAreRefused) {
  ExpectRefused(BatchText(R"(
  data = f32[4] parameter(0)
  sum = f32[4] all-reduce(data), replica_groups={{0,1,2},{3,4,5}}, to_apply=sum
  ROOT all = (f32[4]) tuple(sum)
)"),
                "between some of the replicas");
}

TEST(BatchReplicasTest, ReductionsThatDependOnTheOrderAreRefused) {
  ExpectRefused(BatchText(R"(
  data = f32[4] parameter(0)
  sum = f32[4] all-reduce(data), to_apply=difference
  ROOT all = (f32[4]) tuple(sum)
)"),
                "unusual reduction");
}

TEST(BatchReplicasTest, AnExchangeOfPiecesIsRefused) {
  ExpectRefused(BatchText(R"(
  state = f32[4] parameter(0)
  data = f32[6,4] parameter(1)
  pieces = f32[6,4] all-to-all(data), dimensions={0}, replica_groups={{0,1,2,3,4,5}}
  ROOT all = (f32[4], f32[6,4]) tuple(state, pieces)
)"),
                "an exchange between replicas");
}

TEST(BatchReplicasTest, EffectsAreRefused) {
  ExpectRefused(BatchText(R"(
  data = f32[4] parameter(0)
  effect = f32[4] custom-call(data), custom_call_target="effect", custom_call_has_side_effect=true
  ROOT all = (f32[4]) tuple(data)
)"),
                "acts outside of its replica");
}

TEST(BatchReplicasTest, OrdersAndDynamicSizesAreRefused) {
  ExpectRefused(BatchText(R"(
  data = f32[4] parameter(0)
  first = f32[4] negate(data)
  second = f32[4] tanh(data), control-predecessors={first}
  ROOT all = (f32[4], f32[4]) tuple(first, second)
)"),
                "waits for others");
  ExpectRefused(BatchText(R"(
  data = f32[4] parameter(0)
  size = s32[] constant(3)
  some = f32[<=4] set-dimension-size(data, size), dimensions={0}
  zero = f32[] constant(0)
  sum = f32[] reduce(some, zero), dimensions={0}, to_apply=sum
  ROOT all = (f32[4], f32[]) tuple(data, sum)
)"),
                "a dynamic size");
}

TEST(BatchReplicasTest, RandomNumbersAreEachReplicasOwn) {
  auto batched = BatchText(R"(
  state = f32[4] parameter(0)
  low = f32[] constant(0)
  high = f32[] constant(1)
  noise = f32[4] rng(low, high), distribution=rng_uniform
  ROOT all = (f32[4], f32[4]) tuple(state, noise)
)");
  ASSERT_TRUE(batched.ok()) << batched.status();
  EXPECT_EQ(Count(*batched, HloOpcode::kRng), kGroup);
  EXPECT_EQ(ResultShape(*batched, 1), (std::vector<int64_t>{kGroup, 4}));
}

TEST(BatchReplicasTest, TooMuchForEachReplicaIsRefused) {
  std::string entry = "  state = f32[2,2] parameter(0)\n  x0 = s32[] parameter(1)\n";
  // Slices at different positions have no batching rule.
  for (int i = 0; i < 2000; ++i) {
    absl::StrAppend(&entry, "  slice", i, " = f32[1,1] dynamic-slice(state, x0, x0), ",
                    "dynamic_slice_sizes={1,1}\n");
  }
  absl::StrAppend(&entry, "  ROOT all = (f32[2,2]");
  for (int i = 0; i < 2000; ++i) absl::StrAppend(&entry, ", f32[1,1]");
  absl::StrAppend(&entry, ") tuple(state");
  for (int i = 0; i < 2000; ++i) absl::StrAppend(&entry, ", slice", i);
  absl::StrAppend(&entry, ")\n");
  EXPECT_TRUE(BatchText(entry, 3).ok());
  ExpectRefused(BatchText(entry, 6), "too much is done for each replica");
}

}  // namespace
}  // namespace tf_tpu_ext
