#include "cc/runtime/collective_table.h"

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

using Participants = absl::Span<const CollectiveParticipant>;

CollectiveKey Key(int64_t run, int64_t op = 1, const std::vector<int>& cores = {0, 1}) {
  return {RunId(run), op, /*cross_module=*/false, ByNumber<Rank, Core>(ToNumbers<Core>(cores))};
}

// A participant that records the status it receives.
struct Told {
  std::optional<absl::Status> status;

  CollectiveParticipant As(int rank) {
    CollectiveParticipant participant;
    participant.rank = Rank(rank);
    participant.done = [this](absl::Status told) {
      EXPECT_FALSE(status.has_value()) << "told twice";
      status = std::move(told);
    };
    return participant;
  }
};

absl::Status Nothing(Participants /*participants*/) { return absl::OkStatus(); }

TEST(CollectiveTableTest, LastToArriveWorksForAllInOrderOfRank) {
  CollectiveTable table;
  Told told[3];
  std::vector<int> ranks;
  const auto operation = [&ranks](Participants participants) {
    for (const CollectiveParticipant& each : participants) ranks.push_back(each.rank.value());
    return absl::OkStatus();
  };
  table.Arrive(Key(1, 1, {0, 1, 2}), 3, "all-reduce", told[2].As(2), operation);
  table.Arrive(Key(1, 1, {0, 1, 2}), 3, "all-reduce", told[0].As(0), operation);
  EXPECT_TRUE(ranks.empty());
  EXPECT_FALSE(told[2].status.has_value());
  table.Arrive(Key(1, 1, {0, 1, 2}), 3, "all-reduce", told[1].As(1), operation);
  EXPECT_EQ(ranks, (std::vector<int>{0, 1, 2}));
  for (const Told& each : told) EXPECT_EQ(each.status, absl::OkStatus());
}

TEST(CollectiveTableTest, ParticipantsOfDifferentOperationsFail) {
  for (const bool same_name : {true, false}) {
    CollectiveTable table;
    Told told[2];
    const auto never = [](Participants) -> absl::Status {
      ADD_FAILURE() << "the operation ran";
      return absl::OkStatus();
    };
    CollectiveParticipant first = told[0].As(0), second = told[1].As(1);
    first.elements = 4;
    second.elements = same_name ? 3 : 4;
    table.Arrive(Key(1), 3, "all-reduce", std::move(first), never);
    EXPECT_FALSE(told[0].status.has_value());
    table.Arrive(Key(1), 3, same_name ? "all-reduce" : "all-gather", std::move(second), never);
    for (const Told& each : told) {
      ASSERT_TRUE(each.status.has_value());
      EXPECT_TRUE(absl::IsInvalidArgument(*each.status)) << *each.status;
    }
  }
}

TEST(CollectiveTableTest, OneParticipantNeedsNoOther) {
  CollectiveTable table;
  Told told;
  table.Arrive(Key(1, 1, {0}), 1, "all-reduce", told.As(0), Nothing);
  EXPECT_EQ(told.status, absl::OkStatus());
}

TEST(CollectiveTableTest, ErrorOfTheOperationReachesAll) {
  CollectiveTable table;
  Told told[2];
  const auto fail = [](Participants) { return absl::UnimplementedError("no such type"); };
  table.Arrive(Key(1), 2, "all-reduce", told[0].As(0), fail);
  table.Arrive(Key(1), 2, "all-reduce", told[1].As(1), fail);
  for (const Told& each : told) EXPECT_EQ(each.status, absl::UnimplementedError("no such type"));
}

TEST(CollectiveTableTest, MeetingsDifferByRunOperationModuleAndDevices) {
  CollectiveTable table;
  CollectiveKey module = Key(1, 1);
  module.cross_module = true;
  const CollectiveKey keys[] = {Key(1, 1), Key(2, 1), Key(1, 2), Key(1, 1, {2, 3}), module};
  Told first[5], second[5];
  for (int i = 0; i < 5; ++i) {
    table.Arrive(keys[i], 2, "all-reduce", first[i].As(0), Nothing);
    EXPECT_FALSE(first[i].status.has_value()) << keys[i].DebugString();
  }
  for (int i = 0; i < 5; ++i) {
    table.Arrive(keys[i], 2, "all-reduce", second[i].As(1), Nothing);
    EXPECT_EQ(first[i].status, absl::OkStatus()) << keys[i].DebugString();
    EXPECT_EQ(second[i].status, absl::OkStatus());
  }
}

TEST(CollectiveTableTest, SeveralBuffersOfOneOperationMeetInTheirOrder) {
  CollectiveTable table;
  int data[2][3] = {{1, 2, 3}, {10, 20, 30}};
  std::vector<int> sums;
  const auto add = [&sums](Participants all) {
    sums.push_back(*static_cast<const int*>(all[0].send[0]) +
                   *static_cast<const int*>(all[1].send[0]));
    return absl::OkStatus();
  };
  Told told[2][3];
  // Rank 1 arrives with all its buffers before rank 0 arrives with any.
  for (int rank : {1, 0}) {
    for (int buffer = 0; buffer < 3; ++buffer) {
      CollectiveParticipant participant = told[rank][buffer].As(rank);
      participant.send.push_back(&data[rank][buffer]);
      table.Arrive(Key(1), 2, "all-reduce", std::move(participant), add);
    }
  }
  EXPECT_EQ(sums, (std::vector<int>{11, 22, 33}));
  for (const auto& rank : told) {
    for (const Told& buffer : rank) EXPECT_EQ(buffer.status, absl::OkStatus());
  }
}

TEST(CollectiveTableTest, SameOperationMeetsAgainInALoop) {
  CollectiveTable table;
  int meetings = 0;
  const auto count = [&meetings](Participants) {
    ++meetings;
    return absl::OkStatus();
  };
  for (int round = 0; round < 5; ++round) {
    Told told[2];
    table.Arrive(Key(1), 2, "all-reduce", told[round % 2].As(round % 2), count);
    table.Arrive(Key(1), 2, "all-reduce", told[1 - round % 2].As(1 - round % 2), count);
    EXPECT_EQ(told[0].status, absl::OkStatus());
  }
  EXPECT_EQ(meetings, 5);
}

TEST(CollectiveTableTest, AbortFailsWhoWaitsAndWhoComesLater) {
  CollectiveTable table;
  const absl::Status cause = absl::InternalError("core 1 failed");
  Told waiting, other_run, late;
  table.Arrive(Key(1), 2, "all-reduce", waiting.As(0), Nothing);
  table.Arrive(Key(2), 2, "all-reduce", other_run.As(0), Nothing);
  table.Abort(RunId(1), cause);
  EXPECT_EQ(waiting.status, cause);
  EXPECT_FALSE(other_run.status.has_value());
  table.Arrive(Key(1, 7), 2, "all-reduce", late.As(0), Nothing);
  EXPECT_EQ(late.status, cause);
}

TEST(CollectiveTableTest, FirstAbortCounts) {
  CollectiveTable table;
  table.Abort(RunId(1), absl::InternalError("first"));
  table.Abort(RunId(1), absl::InternalError("second"));
  Told late;
  table.Arrive(Key(1), 2, "all-reduce", late.As(0), Nothing);
  EXPECT_EQ(late.status, absl::InternalError("first"));
}

TEST(CollectiveTableTest, FinishForgetsTheAbort) {
  CollectiveTable table;
  table.Abort(RunId(1), absl::InternalError("failed"));
  table.Finish(RunId(1));
  Told told;
  table.Arrive(Key(1), 2, "all-reduce", told.As(0), Nothing);
  EXPECT_FALSE(told.status.has_value());
  table.Abort(RunId(2), absl::InternalError("another run"));
  EXPECT_FALSE(told.status.has_value());
}

TEST(CollectiveTableTest, ACallbackMayComeBackToTheTable) {
  CollectiveTable table;
  Told next;
  CollectiveParticipant participant;
  participant.done = [&](const absl::Status& status) {
    EXPECT_FALSE(status.ok());
    table.Arrive(Key(1, 2), 2, "all-gather", next.As(0), Nothing);
  };
  table.Arrive(Key(1, 1), 2, "all-reduce", std::move(participant), Nothing);
  table.Abort(RunId(1), absl::CancelledError("cancelled"));
  EXPECT_EQ(next.status, absl::CancelledError("cancelled"));
}

TEST(CollectiveTableTest, DescribeNamesCoresNotRanks) {
  CollectiveTable table;
  Told told[3];
  EXPECT_EQ(table.Describe(RunId(1)), "");
  table.Arrive(Key(1, 1, {4, 6, 7}), 3, "all-to-all", told[2].As(2), Nothing);
  table.Arrive(Key(1, 1, {4, 6, 7}), 3, "all-to-all", told[0].As(0), Nothing);
  EXPECT_EQ(table.Describe(RunId(1)),
            "cores [7, 4] wait in all-to-all for the other cores of [4, 6, 7]; ");
  EXPECT_EQ(table.Describe(RunId(2)), "");
  table.Arrive(Key(1, 1, {4, 6, 7}), 3, "all-to-all", told[1].As(1), Nothing);
  EXPECT_EQ(table.Describe(RunId(1)), "");
}

TEST(CollectiveKeyTest, DebugStringNamesAll) {
  EXPECT_EQ(Key(3, 5, {1, 2}).DebugString(), "run 3, op 5, cores [1, 2]");
}

// Each rank is a chain: the next round starts when the previous one is done, as in a program.
TEST(CollectiveTableTest, ManyThreadsAndRounds) {
  constexpr int kRanks = 8, kRounds = 500;
  CollectiveTable table;
  std::vector<int> cores;
  for (int rank = 0; rank < kRanks; ++rank) cores.push_back(rank);
  std::vector<int64_t> values(kRanks, 1);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      for (int round = 0; round < kRounds; ++round) {
        absl::Notification met;
        CollectiveParticipant participant;
        participant.rank = Rank(rank);
        participant.send = {&values[rank]};
        participant.recv = {&values[rank]};
        participant.done = [&met](const absl::Status& status) {
          EXPECT_EQ(status, absl::OkStatus());
          met.Notify();
        };
        table.Arrive(Key(1, round % 3, cores), kRanks, "sum", std::move(participant),
                     [](Participants all) {
                       int64_t sum = 0;
                       for (const auto& each : all) {
                         sum += *static_cast<const int64_t*>(each.send[0]);
                       }
                       for (const auto& each : all) {
                         *static_cast<int64_t*>(each.recv[0]) = sum % 1000003;
                       }
                       return absl::OkStatus();
                     });
        met.WaitForNotification();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  int64_t expected = 1;
  for (int round = 0; round < kRounds; ++round) expected = expected * kRanks % 1000003;
  EXPECT_EQ(values, std::vector<int64_t>(kRanks, expected));
}

TEST(CollectiveTableTest, AbortAgainstArrivalsTellsEveryoneOnce) {
  constexpr int kRanks = 4, kRuns = 300;
  for (int run = 0; run < kRuns; ++run) {
    CollectiveTable table;
    std::atomic<int> told{0};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks - 1; ++rank) {
      threads.emplace_back([&, rank] {
        CollectiveParticipant participant;
        participant.rank = Rank(rank);
        participant.done = [&told](const absl::Status& status) {
          EXPECT_EQ(status, absl::AbortedError("gone"));
          ++told;
        };
        table.Arrive(Key(run, 1, {0, 1, 2, 3}), kRanks, "all-reduce", std::move(participant),
                     Nothing);
      });
    }
    threads.emplace_back([&] { table.Abort(RunId(run), absl::AbortedError("gone")); });
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(told, kRanks - 1);
  }
}

}  // namespace
}  // namespace tf_tpu_ext
