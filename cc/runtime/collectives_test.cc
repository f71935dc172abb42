#include "cc/runtime/collectives.h"

#include <complex>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/blocking_counter.h"
#include "cc/abi/xla/collective_event.h"
#include "cc/abi/xla/collectives_wait.h"
#include "cc/base/compute_pool.h"
#include "gtest/gtest.h"
#include "xla/backends/cpu/collectives/cpu_clique_key.h"
#include "xla/backends/cpu/collectives/cpu_collectives.h"
#include "xla/core/collectives/communicator.h"
#include "xla/service/collective_ops_utils.h"

namespace tf_tpu_ext {
namespace {

using stream_executor::DeviceAddressBase;
using xla::Communicator;
using xla::RankId;
using xla::ReductionKind;

// More than is reduced at a time, and not a multiple of it.
constexpr int kMany = 2500;

template <typename T>
DeviceAddressBase Address(std::vector<T>& values) {
  return DeviceAddressBase(values.data(), values.size() * sizeof(T));
}

class CollectivesTest : public ::testing::Test {
 protected:
  using Start =
      std::function<CollectiveEvent(Communicator&, int rank, const Communicator::Executor&)>;

  // The status that each rank's call returns.
  std::vector<absl::Status> OnEach(int ranks, const Start& start) {
    std::vector<xla::GlobalDeviceId> devices;
    std::vector<xla::Collectives::DeviceRank> places;
    for (int rank = 0; rank < ranks; ++rank) {
      devices.emplace_back(rank);
      places.emplace_back(nullptr, RankId(rank));
    }
    const xla::cpu::CpuCollectives::Executor executor(
        xla::RendezvousKey(xla::RunId(++last_run_), devices, ranks,
                           xla::RendezvousKey::kCrossReplica, /*op_id=*/1),
        absl::InfiniteDuration());
    auto communicators = collectives_->CreateCommunicators(xla::cpu::CpuCliqueKey(devices),
                                                           std::nullopt, places, {});
    EXPECT_TRUE(communicators.ok()) << communicators.status();
    std::vector<absl::Status> statuses(ranks);
    if (kCollectivesWait) {
      absl::BlockingCounter running(ranks);
      for (int rank = 0; rank < ranks; ++rank) {
        pool_.Schedule([&, rank] {
          CollectiveEvent event = start(*(*communicators)[rank], rank, executor);
          statuses[rank] = Await(event);
          running.DecrementCount();
        });
      }
      running.Wait();
      return statuses;
    }
    std::vector<CollectiveEvent> futures;
    for (int rank = 0; rank < ranks; ++rank) {
      futures.push_back(start(*(*communicators)[rank], rank, executor));
      // Nobody continues before the last one has arrived.
      if (rank < ranks - 1) {
        EXPECT_FALSE(IsReady(futures.back())) << rank;
      }
    }
    for (int rank = 0; rank < ranks; ++rank) statuses[rank] = Await(futures[rank]);
    return statuses;
  }

  void ExpectOk(const std::vector<absl::Status>& statuses) {
    for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  }

  CollectiveTable table_;
  ComputePool pool_;
  const std::unique_ptr<xla::cpu::CpuCollectives> collectives_ =
      MakeCollectives(&table_, &pool_, nullptr);
  int64_t last_run_ = 0;
};

TEST_F(CollectivesTest, AllReduceSumsFloats) {
  std::vector<std::vector<float>> in(3), out(3, std::vector<float>(kMany));
  for (int rank = 0; rank < 3; ++rank) {
    for (int i = 0; i < kMany; ++i) in[rank].push_back(static_cast<float>(i * (rank + 1)));
  }
  ExpectOk(OnEach(3, [&](Communicator& communicator, int rank, const auto& executor) {
    return communicator.AllReduce(Address(in[rank]), Address(out[rank]), xla::F32, kMany,
                                  ReductionKind::SUM, executor);
  }));
  for (int rank = 0; rank < 3; ++rank) {
    for (int i = 0; i < kMany; ++i) ASSERT_EQ(out[rank][i], 6.0f * i) << rank << ", " << i;
  }
}

// XLA may use the same buffer for both directions.
TEST_F(CollectivesTest, AllReduceWorksInPlace) {
  std::vector<std::vector<int32_t>> values(2, std::vector<int32_t>(kMany));
  for (int i = 0; i < kMany; ++i) {
    values[0][i] = i;
    values[1][i] = -2 * i;
  }
  ExpectOk(OnEach(2, [&](Communicator& communicator, int rank, const auto& executor) {
    return communicator.AllReduce(Address(values[rank]), Address(values[rank]), xla::S32, kMany,
                                  ReductionKind::SUM, executor);
  }));
  for (int i = 0; i < kMany; ++i) {
    ASSERT_EQ(values[0][i], -i);
    ASSERT_EQ(values[1][i], -i);
  }
}

TEST_F(CollectivesTest, EveryReductionOfIntegersAndBooleans) {
  const std::vector<std::pair<ReductionKind, int32_t>> expected = {{ReductionKind::SUM, 4},
                                                                   {ReductionKind::PRODUCT, -30},
                                                                   {ReductionKind::MIN, -3},
                                                                   {ReductionKind::MAX, 5}};
  for (const auto& [kind, result] : expected) {
    std::vector<std::vector<int32_t>> in = {{5}, {-3}, {2}}, out(3, {0});
    ExpectOk(
        OnEach(3, [&, kind = kind](Communicator& communicator, int rank, const auto& executor) {
          return communicator.AllReduce(Address(in[rank]), Address(out[rank]), xla::S32, 1, kind,
                                        executor);
        }));
    EXPECT_EQ(out, (std::vector<std::vector<int32_t>>(3, {result}))) << static_cast<int>(kind);
  }
  // For booleans, a sum is "any" and a product is "all".
  for (const auto& [kind, result] : std::vector<std::pair<ReductionKind, std::vector<uint8_t>>>{
           {ReductionKind::SUM, {0, 1, 1}}, {ReductionKind::PRODUCT, {0, 0, 1}}}) {
    std::vector<std::vector<uint8_t>> in = {{0, 0, 1}, {0, 1, 1}}, out(2, {7, 7, 7});
    ExpectOk(
        OnEach(2, [&, kind = kind](Communicator& communicator, int rank, const auto& executor) {
          return communicator.AllReduce(Address(in[rank]), Address(out[rank]), xla::PRED, 3, kind,
                                        executor);
        }));
    EXPECT_EQ(out[0], result);
    EXPECT_EQ(out[1], result);
  }
}

TEST_F(CollectivesTest, ReduceScatterGivesEachRankItsPart) {
  std::vector<std::vector<float>> in = {{1, 2, 3, 4}, {10, 20, 30, 40}}, out(2, {0, 0});
  ExpectOk(OnEach(2, [&](Communicator& communicator, int rank, const auto& executor) {
    return communicator.ReduceScatter(Address(in[rank]), Address(out[rank]), xla::F32, 2,
                                      ReductionKind::SUM, executor);
  }));
  EXPECT_EQ(out[0], (std::vector<float>{11, 22}));
  EXPECT_EQ(out[1], (std::vector<float>{33, 44}));
}

TEST_F(CollectivesTest, AllGatherOrdersByRank) {
  std::vector<std::vector<int16_t>> in = {{1, 2}, {3, 4}, {5, 6}}, out(3, std::vector<int16_t>(6));
  ExpectOk(OnEach(3, [&](Communicator& communicator, int rank, const auto& executor) {
    return communicator.AllGather(Address(in[rank]), Address(out[rank]), xla::S16, 2, executor);
  }));
  for (const auto& gathered : out) EXPECT_EQ(gathered, (std::vector<int16_t>{1, 2, 3, 4, 5, 6}));
}

TEST_F(CollectivesTest, PermuteFillsWithZerosWhereNobodySends) {
  std::vector<std::vector<float>> in = {{1}, {2}, {3}}, out(3, {9});
  // 0 -> 1 -> 2.
  ExpectOk(OnEach(3, [&](Communicator& communicator, int rank, const auto& executor) {
    std::optional<RankId> source;
    if (rank > 0) source = RankId(rank - 1);
    std::vector<RankId> targets;
    if (rank < 2) targets.push_back(RankId(rank + 1));
    return communicator.CollectivePermute(Address(in[rank]), Address(out[rank]), xla::F32, 1,
                                          source, targets, executor);
  }));
  EXPECT_EQ(out, (std::vector<std::vector<float>>{{0}, {1}, {2}}));
}

TEST_F(CollectivesTest, AllToAllTransposes) {
  // in[rank][target] and out[rank][source].
  std::vector<std::vector<std::vector<float>>> in(2), out(2);
  for (int rank = 0; rank < 2; ++rank) {
    for (int other = 0; other < 2; ++other) {
      in[rank].push_back({10.0f * rank + other});
      out[rank].push_back({0});
    }
  }
  ExpectOk(OnEach(2, [&](Communicator& communicator, int rank, const auto& executor) {
    return communicator.AllToAll({Address(in[rank][0]), Address(in[rank][1])},
                                 {Address(out[rank][0]), Address(out[rank][1])}, xla::F32, 1,
                                 executor);
  }));
  for (int rank = 0; rank < 2; ++rank) {
    for (int source = 0; source < 2; ++source) EXPECT_EQ(out[rank][source], in[source][rank]);
  }
}

TEST_F(CollectivesTest, BroadcastTakesTheRootsValue) {
  std::vector<std::vector<float>> in = {{1}, {2}}, out(2, {0});
  ExpectOk(OnEach(2, [&](Communicator& communicator, int rank, const auto& executor) {
    return communicator.Broadcast(Address(in[rank]), Address(out[rank]), xla::F32, 1, RankId(1),
                                  executor);
  }));
  EXPECT_EQ(out, (std::vector<std::vector<float>>{{2}, {2}}));
}

TEST_F(CollectivesTest, RefusesReductionsThatHaveNoMeaning) {
  std::vector<std::complex<float>> in(1), out(1);
  for (const absl::Status& status :
       OnEach(2, [&](Communicator& communicator, int, const auto& executor) {
         return communicator.AllReduce(Address(in), Address(out), xla::C64, 1, ReductionKind::MAX,
                                       executor);
       })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_TRUE(absl::StrContains(status.message(), "c64")) << status;
  }
}

TEST_F(CollectivesTest, RefusesPointToPointTransfers) {
  std::vector<float> value = {1};
  const std::vector<absl::Status> statuses =
      OnEach(1, [&](Communicator& communicator, int, const auto& executor) {
        return communicator.Send(Address(value), xla::F32, 1, RankId(0), executor);
      });
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kUnimplemented);
  EXPECT_TRUE(absl::StrContains(statuses[0].message(), "collective_permute")) << statuses[0];
}

TEST_F(CollectivesTest, AnAbortedRunFailsWhoComes) {
  table_.Abort(RunId(1), absl::CancelledError("the step was cancelled"));
  std::vector<float> value = {1};
  const std::vector<absl::Status> statuses =
      OnEach(1, [&](Communicator& communicator, int, const auto& executor) {
        return communicator.AllGather(Address(value), Address(value), xla::F32, 1, executor);
      });
  EXPECT_EQ(statuses[0], absl::CancelledError("the step was cancelled"));
}

TEST(CombineBuffersTest, IntegersWrapAround) {
  constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
  const std::vector<int32_t> wide = {kMax, 3};
  int32_t result = 0;
  for (const auto& [kind, expected] : std::vector<std::pair<Combination::Kind, int32_t>>{
           {Combination::kSum, std::numeric_limits<int32_t>::min() + 2},
           {Combination::kProduct, kMax - 2}}) {
    const absl::Status combined =
        CombineBuffers({kind, xla::S32}, {&wide[0], &wide[1]}, 0, 1, &result);
    ASSERT_TRUE(combined.ok()) << combined;
    EXPECT_EQ(result, expected);
  }
  // Promoted to int, the square of this would overflow.
  const uint16_t narrow = 65535;
  uint16_t square = 0;
  const absl::Status combined =
      CombineBuffers({Combination::kProduct, xla::U16}, {&narrow, &narrow}, 0, 1, &square);
  ASSERT_TRUE(combined.ok()) << combined;
  EXPECT_EQ(square, 1);
}

TEST(CombineBuffersTest, CombinesAPartIntoOneOfTheValues) {
  std::vector<float> first = {1, 2, 3, 4}, second = {10, 20, 30, 40};
  Combination combination;
  combination.kind = Combination::kSum;
  combination.type = xla::F32;
  ASSERT_TRUE(CombineBuffers(combination, {first.data(), second.data()}, /*offset=*/1,
                             /*count=*/2, first.data())
                  .ok());
  EXPECT_EQ(first, (std::vector<float>{1, 22, 33, 4}));
  combination.kind = Combination::kMax;
  combination.type = xla::C64;
  EXPECT_EQ(CombineBuffers(combination, {first.data(), second.data()}, 0, 1, first.data()).code(),
            absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace tf_tpu_ext
