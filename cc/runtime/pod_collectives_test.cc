// Tests the collectives that XLA's programs call on a pod.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/blocking_counter.h"
#include "cc/abi/xla/collective_event.h"
#include "cc/abi/xla/collectives_wait.h"
#include "cc/base/compute_pool.h"
#include "cc/runtime/collectives.h"
#include "cc/runtime/pod_of_tables.h"
#include "gtest/gtest.h"
#include "xla/backends/cpu/collectives/cpu_clique_key.h"
#include "xla/backends/cpu/collectives/cpu_collectives.h"
#include "xla/core/collectives/communicator.h"
#include "xla/service/collective_ops_utils.h"

namespace tf_tpu_ext {
namespace {

class PodCollectivesTest : public PodOfTables {
 protected:
  struct Layout {
    int hosts;
    int cores_per_host;
    // Indexed by rank.
    std::vector<int> cores;

    int ranks() const { return static_cast<int>(cores.size()); }
  };
  using Start = std::function<CollectiveEvent(xla::Communicator&, int rank,
                                              const xla::Communicator::Executor&)>;

  // Includes groups that don't use all hosts or all cores of a host, or use them in another order.
  static std::vector<Layout> Layouts() {
    return {{2, 2, {0, 1, 2, 3}}, {3, 1, {0, 1, 2}},
            {3, 2, {0, 4, 5}},    {2, 2, {3, 0, 2}},
            {4, 2, {1, 6}},       {2, 4, {2, 3}},
            {3, 2, {5, 0, 3, 1}}, {4, 2, {0, 1, 2, 3, 4, 5, 6, 7}}};
  }

  // Calls `body` for each layout.
  static void ForEachLayout(const std::function<void(const Layout&)>& body) {
    for (const Layout& layout : Layouts()) {
      SCOPED_TRACE(absl::StrCat(layout.hosts, " hosts of ", layout.cores_per_host,
                                " cores, ranks on [", absl::StrJoin(layout.cores, ", "), "]"));
      body(layout);
    }
  }

  void ExpectOkOnEach(const Layout& layout, const Start& start) {
    Connect(layout.hosts, layout.cores_per_host);
    std::vector<xla::GlobalDeviceId> devices;
    devices.reserve(layout.cores.size());
    for (int core : layout.cores) devices.emplace_back(core);
    const xla::cpu::CpuCollectives::Executor executor(
        xla::RendezvousKey(xla::RunId(kRun.value()), devices, layout.ranks(),
                           xla::RendezvousKey::kCrossReplica, /*op_id=*/1),
        absl::InfiniteDuration());
    std::vector<std::unique_ptr<xla::cpu::CpuCollectives>> collectives;
    std::vector<std::unique_ptr<xla::Communicator>> communicators;
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      collectives.push_back(MakeCollectives(&TableOf(Core(layout.cores[rank])), &pool_, nullptr));
      auto made = collectives.back()->CreateCommunicators(
          xla::cpu::CpuCliqueKey(devices), std::nullopt,
          std::vector<xla::Collectives::DeviceRank>{{nullptr, xla::RankId(rank)}}, {});
      ASSERT_TRUE(made.ok()) << made.status();
      communicators.push_back(std::move(made->front()));
    }
    for (const absl::Status& status : StartAll(communicators, start, executor)) {
      EXPECT_TRUE(status.ok()) << status;
    }
  }

  ComputePool pool_;

 private:
  std::vector<absl::Status> StartAll(
      const std::vector<std::unique_ptr<xla::Communicator>>& communicators, const Start& start,
      const xla::Communicator::Executor& executor) {
    const int ranks = static_cast<int>(communicators.size());
    std::vector<absl::Status> statuses(ranks);
    if (kCollectivesWait) {
      absl::BlockingCounter running(ranks);
      for (int rank = 0; rank < ranks; ++rank) {
        pool_.Schedule([&, rank] {
          CollectiveEvent event = start(*communicators[rank], rank, executor);
          statuses[rank] = Await(event);
          running.DecrementCount();
        });
      }
      running.Wait();
      return statuses;
    }
    std::vector<CollectiveEvent> events;
    for (int rank = 0; rank < ranks; ++rank) {
      events.push_back(start(*communicators[rank], rank, executor));
    }
    for (int rank = 0; rank < ranks; ++rank) {
      // On this thread, everything has already arrived.
      statuses[rank] =
          IsReady(events[rank]) ? Await(events[rank]) : absl::DeadlineExceededError("still waits");
    }
    return statuses;
  }
};

template <typename T>
stream_executor::DeviceAddressBase AddressOf(std::vector<T>& values) {
  return stream_executor::DeviceAddressBase(values.data(), values.size() * sizeof(T));
}

// Values whose sums depend on the order of the additions.
std::vector<std::vector<float>> UnevenValues(int ranks, int count) {
  std::vector<std::vector<float>> values(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    for (int i = 0; i < count; ++i) {
      values[rank].push_back(
          std::ldexp(1.0f / static_cast<float>(3 + rank + i), (7 * rank + 5 * i) % 20));
    }
  }
  return values;
}

std::vector<uint32_t> BitsOf(const std::vector<float>& values) {
  std::vector<uint32_t> bits(values.size());
  std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

TEST_F(PodCollectivesTest, AllReduceGivesAllHostsTheSameSum) {
  for (const int count : {2500, kElementsInParts}) {
    ForEachLayout([this, count](const Layout& layout) {
      auto in = UnevenValues(layout.ranks(), count);
      std::vector<std::vector<float>> out(layout.ranks(), std::vector<float>(count));
      ExpectOkOnEach(layout, [&](auto& communicator, int rank, const auto& executor) {
        return communicator.AllReduce(AddressOf(in[rank]), AddressOf(out[rank]), xla::F32, count,
                                      xla::ReductionKind::SUM, executor);
      });
      for (int i = 0; i < count; ++i) {
        double sum = 0;
        for (const auto& values : in) sum += values[i];
        ASSERT_NEAR(out[0][i], sum, 1e-6 * sum) << i;
      }
      for (const auto& values : out) EXPECT_EQ(BitsOf(values), BitsOf(out[0]));
    });
  }
}

TEST_F(PodCollectivesTest, AllReduceInPartsWorksInPlace) {
  ForEachLayout([this](const Layout& layout) {
    std::vector<std::vector<int32_t>> values(layout.ranks());
    std::vector<int32_t> expected(kElementsInParts);
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      for (int i = 0; i < kElementsInParts; ++i) {
        values[rank].push_back((rank + 1) * i);
        expected[i] += values[rank][i];
      }
    }
    ExpectOkOnEach(layout, [&](auto& communicator, int rank, const auto& executor) {
      return communicator.AllReduce(AddressOf(values[rank]), AddressOf(values[rank]), xla::S32,
                                    kElementsInParts, xla::ReductionKind::SUM, executor);
    });
    for (const auto& each : values) EXPECT_EQ(each, expected);
  });
}

TEST_F(PodCollectivesTest, AllReduceWorksInPlace) {
  ForEachLayout([this](const Layout& layout) {
    std::vector<std::vector<int32_t>> values(layout.ranks());
    std::vector<int32_t> expected = {0, 1};
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      values[rank] = {rank + 1, 100 - rank};
      expected = {std::max(expected[0], rank + 1), std::max(expected[1], 100 - rank)};
    }
    ExpectOkOnEach(layout, [&](auto& communicator, int rank, const auto& executor) {
      return communicator.AllReduce(AddressOf(values[rank]), AddressOf(values[rank]), xla::S32, 2,
                                    xla::ReductionKind::MAX, executor);
    });
    for (const auto& each : values) EXPECT_EQ(each, expected);
  });
}

TEST_F(PodCollectivesTest, ReduceScatterGivesEachRankItsPart) {
  ForEachLayout([this](const Layout& layout) {
    const int ranks = layout.ranks();
    // in[rank][2 * target + i]
    std::vector<std::vector<float>> in(ranks), out(ranks, std::vector<float>(2));
    for (int rank = 0; rank < ranks; ++rank) {
      for (int i = 0; i < 2 * ranks; ++i) in[rank].push_back(static_cast<float>(100 * rank + i));
    }
    ExpectOkOnEach(layout, [&](auto& communicator, int rank, const auto& executor) {
      return communicator.ReduceScatter(AddressOf(in[rank]), AddressOf(out[rank]), xla::F32, 2,
                                        xla::ReductionKind::SUM, executor);
    });
    for (int target = 0; target < ranks; ++target) {
      for (int i = 0; i < 2; ++i) {
        float sum = 0;
        for (const auto& values : in) sum += values[2 * target + i];
        EXPECT_EQ(out[target][i], sum) << target;
      }
    }
  });
}

TEST_F(PodCollectivesTest, AllGatherOrdersByRank) {
  ForEachLayout([this](const Layout& layout) {
    const int ranks = layout.ranks();
    std::vector<std::vector<int16_t>> in(ranks), out(ranks, std::vector<int16_t>(3 * ranks));
    std::vector<int16_t> expected;
    for (int rank = 0; rank < ranks; ++rank) {
      for (int i = 0; i < 3; ++i) {
        in[rank].push_back(static_cast<int16_t>(10 * rank + i));
        expected.push_back(in[rank].back());
      }
    }
    ExpectOkOnEach(layout, [&](auto& communicator, int rank, const auto& executor) {
      return communicator.AllGather(AddressOf(in[rank]), AddressOf(out[rank]), xla::S16, 3,
                                    executor);
    });
    for (const auto& gathered : out) EXPECT_EQ(gathered, expected);
  });
}

TEST_F(PodCollectivesTest, AllGatherOfNothing) {
  ForEachLayout([this](const Layout& layout) {
    std::vector<float> nothing;
    ExpectOkOnEach(layout, [&](auto& communicator, int, const auto& executor) {
      return communicator.AllGather(AddressOf(nothing), AddressOf(nothing), xla::F32, 0, executor);
    });
  });
}

TEST_F(PodCollectivesTest, PermuteFillsWithZerosWhereNobodySends) {
  ForEachLayout([this](const Layout& layout) {
    const int ranks = layout.ranks();
    std::vector<std::vector<float>> in(ranks), out(ranks, {9});
    for (int rank = 0; rank < ranks; ++rank) in[rank] = {rank + 1.0f};
    // Each sends to the rank before it. Nobody sends to the last one.
    ExpectOkOnEach(layout, [&](auto& communicator, int rank, const auto& executor) {
      std::optional<xla::RankId> source;
      if (rank < ranks - 1) source = xla::RankId(rank + 1);
      std::vector<xla::RankId> targets;
      if (rank > 0) targets.emplace_back(rank - 1);
      return communicator.CollectivePermute(AddressOf(in[rank]), AddressOf(out[rank]), xla::F32, 1,
                                            source, targets, executor);
    });
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(out[rank][0], rank < ranks - 1 ? rank + 2.0f : 0.0f) << rank;
    }
  });
}

TEST_F(PodCollectivesTest, AllToAllTransposes) {
  ForEachLayout([this](const Layout& layout) {
    const int ranks = layout.ranks();
    // in[rank][target] and out[rank][source].
    std::vector<std::vector<std::vector<float>>> in(ranks), out(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      for (int other = 0; other < ranks; ++other) {
        in[rank].push_back({10.0f * rank + other, -1.0f * rank});
        out[rank].push_back({0, 0});
      }
    }
    ExpectOkOnEach(layout, [&](auto& communicator, int rank, const auto& executor) {
      std::vector<stream_executor::DeviceAddressBase> send, recv;
      for (int other = 0; other < ranks; ++other) {
        send.push_back(AddressOf(in[rank][other]));
        recv.push_back(AddressOf(out[rank][other]));
      }
      return communicator.AllToAll(BuffersOf(send), BuffersOf(recv), xla::F32, 2, executor);
    });
    for (int rank = 0; rank < ranks; ++rank) {
      for (int source = 0; source < ranks; ++source) {
        EXPECT_EQ(out[rank][source], in[source][rank]) << source << " to " << rank;
      }
    }
  });
}

TEST_F(PodCollectivesTest, BroadcastTakesTheRootsValue) {
  ForEachLayout([this](const Layout& layout) {
    const int root = layout.ranks() - 1;
    std::vector<std::vector<float>> in(layout.ranks()), out(layout.ranks(), {0});
    for (int rank = 0; rank < layout.ranks(); ++rank) in[rank] = {rank + 1.0f};
    ExpectOkOnEach(layout, [&](auto& communicator, int rank, const auto& executor) {
      return communicator.Broadcast(AddressOf(in[rank]), AddressOf(out[rank]), xla::F32, 1,
                                    xla::RankId(root), executor);
    });
    for (const auto& each : out) EXPECT_EQ(each, in[root]);
  });
}

}  // namespace
}  // namespace tf_tpu_ext
