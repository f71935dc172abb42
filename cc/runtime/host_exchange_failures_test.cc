// Tests how meetings of the hosts of a pod fail and end, and what they say.
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "cc/runtime/exchanging_hosts.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

class HostFailuresTest : public HostExchangeTest {
 protected:
  // Connects two hosts; both cores of the first reach an all-reduce, and wait for the second.
  void OneOfTwoHostsArrives(Player (&players)[2]) {
    Connect(2, 2);
    for (int rank : {0, 1}) {
      players[rank].send = {1};
      players[rank].recv = {0};
      Arrive(KeyOf({0, 1, 2, 3}), rank, "all-reduce", &players[rank], Sum());
    }
  }
};

TEST_F(HostExchangeTest, AHostThatCanNotCombineItsPartFails) {
  Connect(3, 1);
  int calls = 0;
  const CollectiveOperation fails = SumOfMany([&](int64_t) {
    return ++calls <= 3 ? absl::OkStatus() : absl::UnimplementedError("no more");
  });
  Player players[3];
  for (int rank = 0; rank < 3; ++rank) {
    players[rank].send.assign(kElementsInParts, 1.0f);
    players[rank].recv.resize(kElementsInParts);
    Arrive(KeyOf({0, 1, 2}), rank, "sum", &players[rank], rank == 1 ? fails : SumOfMany());
  }
  EXPECT_EQ(players[1].told, absl::UnimplementedError("no more"));
  for (int rank : {0, 2}) {
    EXPECT_FALSE(players[rank].told.has_value());
    // As the step does when it is notified.
    tables_[rank]->Abort(kRun, absl::AbortedError("the step failed"));
    EXPECT_EQ(players[rank].told, absl::AbortedError("the step failed"));
  }
}

TEST_F(HostExchangeTest, AnAbortLeavesTheBuffersThatAreRead) {
  Connect(2, 1);
  Player player = {{1}, {0}};
  CollectiveOperation aborts = Sum();
  aborts.combine = [&](const auto&, int64_t, void*) {
    tables_[0]->Abort(kRun, absl::AbortedError("too late"));
    EXPECT_FALSE(player.told.has_value());
    return absl::OkStatus();
  };
  Arrive(KeyOf({0, 1}), 0, "sum", &player, aborts);
  EXPECT_EQ(player.told, absl::AbortedError("too late"));
}

TEST_F(HostExchangeTest, HostsInDifferentCollectivesBothFail) {
  for (const bool same_name : {true, false}) {
    Connect(2, 2);
    Player players[4];
    for (int rank : {0, 1, 2, 3}) {
      const bool is_other = rank >= 2;
      players[rank].send.resize(is_other && same_name ? 5 : 4);
      players[rank].recv.resize(20);
      Arrive(KeyOf({0, 1, 2, 3}), rank, is_other && !same_name ? "permute" : "all-gather",
             &players[rank], Never());
    }
    const char* const other = same_name ? "all-gather of 5" : "permute of 4";
    for (int rank : {0, 1, 2, 3}) {
      ASSERT_TRUE(players[rank].told.has_value()) << rank;
      const absl::Status& status = *players[rank].told;
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
      for (const char* each : {"all-gather of 4", other}) {
        EXPECT_TRUE(absl::StrContains(status.message(), each)) << status;
      }
      EXPECT_TRUE(absl::StrContains(status.message(), TaskOfHost(rank >= 2 ? 0 : 1))) << status;
    }
  }
}

TEST_F(HostExchangeTest, HostsOfWhichOneCombinesFail) {
  Connect(2, 1);
  Player players[2] = {{{1}, {0, 0}}, {{2}, {0, 0}}};
  Arrive(KeyOf({0, 1}), 0, "all-reduce", &players[0], Sum());
  Arrive(KeyOf({0, 1}), 1, "all-gather", &players[1], Never());
  for (const Player& player : players) {
    ASSERT_TRUE(player.told.has_value());
    EXPECT_TRUE(absl::IsInvalidArgument(*player.told)) << *player.told;
  }
}

TEST_F(HostExchangeTest, ErrorOfTheOperationReachesTheParticipantsOfTheHost) {
  Connect(2, 2);
  Player players[4];
  for (int rank : {0, 1, 2, 3}) {
    players[rank].send = {1};
    players[rank].recv.resize(4);
    const CollectiveOperation fails = [](All) { return absl::UnimplementedError("no such type"); };
    Arrive(KeyOf({0, 1, 2, 3}), rank, "all-gather", &players[rank], rank < 2 ? fails : Gather(1));
  }
  for (int rank : {0, 1}) {
    EXPECT_EQ(players[rank].told, absl::UnimplementedError("no such type"));
  }
  for (int rank : {2, 3}) EXPECT_EQ(players[rank].told, absl::OkStatus());
}

TEST_F(HostExchangeTest, AHostThatCanNotCombineFailsAtOnce) {
  Connect(2, 2);
  Player players[2];
  CollectiveOperation fails = Sum();
  fails.combine = [](const auto&, int64_t, void*) {
    return absl::UnimplementedError("no such type");
  };
  for (int rank : {0, 1}) {
    players[rank].send = {1};
    players[rank].recv = {0};
    Arrive(KeyOf({0, 1, 2, 3}), rank, "all-reduce", &players[rank], fails);
  }
  for (const Player& player : players) {
    EXPECT_EQ(player.told, absl::UnimplementedError("no such type"));
  }
}

TEST_F(HostExchangeTest, AbortEndsWhoWaitsForAnotherHost) {
  Connect(2, 2);
  const CollectiveKey key = KeyOf({0, 1, 2, 3});
  Player players[4], alone, late, of_other_run;
  for (Player& player : players) {
    player.send = {1};
    player.recv.resize(4);
  }
  for (Player* player : {&alone, &late, &of_other_run}) *player = players[0];
  for (int rank : {0, 1}) Arrive(key, rank, "all-gather", &players[rank], Gather(1));
  // This participant waits for a core on its own host.
  Arrive(key, 0, "all-gather", &alone, Gather(1));
  const CollectiveKey other_run = KeyOf({0, 1, 2, 3}, RunId(2));
  tables_[0]->Connect(RunId(2), links_[0]);
  Arrive(other_run, 0, "all-gather", &of_other_run, Gather(1));
  tables_[0]->Abort(kRun, absl::CancelledError("cancelled"));
  for (const Player* player : {&players[0], &players[1], &alone}) {
    EXPECT_EQ(player->told, absl::CancelledError("cancelled"));
  }
  EXPECT_FALSE(of_other_run.told.has_value());
  Arrive(key, 1, "all-gather", &late, Never());
  EXPECT_EQ(late.told, absl::CancelledError("cancelled"));
  // The other host has what this one sent.
  for (int rank : {2, 3}) Arrive(key, rank, "all-gather", &players[rank], Gather(1));
  for (int rank : {2, 3}) EXPECT_EQ(players[rank].told, absl::OkStatus());
  // Only cleans up after the test.
  tables_[0]->Abort(RunId(2), absl::CancelledError("over"));
  EXPECT_EQ(of_other_run.told, absl::CancelledError("over"));
}

TEST_F(HostFailuresTest, AHostThatIsGoneFailsWhoWaitsForIt) {
  Player players[2];
  OneOfTwoHostsArrives(players);
  rendezvous_->StartAbort(absl::UnavailableError("the worker is gone"));
  for (const Player& player : players) {
    ASSERT_TRUE(player.told.has_value());
    EXPECT_TRUE(absl::IsUnavailable(*player.told)) << *player.told;
    EXPECT_TRUE(absl::StrContains(player.told->message(), TaskOfHost(1))) << *player.told;
  }
}

TEST_F(HostExchangeTest, DescribeSaysWhoWaitsForOtherCoresOfTheHost) {
  Connect(2, 2);
  Player player = {{1}, {0, 0, 0, 0}, std::nullopt};
  Arrive(KeyOf({0, 1, 2, 3}), 0, "all-gather", &player, Gather(1));
  EXPECT_EQ(tables_[0]->Describe(kRun),
            "cores [0] wait in all-gather for the other cores of [0, 1, 2, 3]; ");
  EXPECT_EQ(tables_[0]->Describe(kRun, absl::Hours(1)), "");
  EXPECT_EQ(tables_[1]->Describe(kRun), "");
  tables_[0]->Abort(kRun, absl::CancelledError("over"));
}

TEST_F(HostFailuresTest, DescribeSaysWhichHostIsMissing) {
  Player players[2];
  OneOfTwoHostsArrives(players);
  const std::string description = tables_[0]->Describe(kRun);
  EXPECT_TRUE(absl::StrContains(description, TaskOfHost(1))) << description;
  EXPECT_EQ(tables_[0]->Describe(kRun, absl::Hours(1)), "");
  EXPECT_EQ(tables_[1]->Describe(kRun), "");
  tables_[0]->Abort(kRun, absl::CancelledError("over"));
}

}  // namespace
}  // namespace tf_tpu_ext
