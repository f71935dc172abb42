// Tests how the hosts of a pod meet, using the test's own operations.
#include "cc/runtime/host_exchange.h"

#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "cc/base/compute_pool.h"
#include "cc/pods/host_links.h"
#include "cc/runtime/exchanging_hosts.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

TEST_F(HostExchangeTest, KnowsWhoElseTakesPart) {
  CollectiveParticipant participant;
  participant.rank = Rank(0);
  participant.send = {nullptr};
  const HostExchange exchange(KeyOf({5, 0, 1}), "sum", {participant}, Never(),
                              MakePod(4, 2, 2).shape);
  EXPECT_EQ(exchange.others(), std::set<Host>{Host(0)});
}

TEST_F(HostExchangeTest, TheCoresOfAHostMeetBeforeTheHostsDo) {
  Connect(2, 2);
  std::atomic<int> combined = 0, senders = 0;
  Player players[4];
  for (int rank : {0, 2, 3, 1}) {
    EXPECT_EQ(combined, rank == 1 ? 1 : 0) << rank;
    for (const Player& player : players) EXPECT_FALSE(player.told.has_value());
    players[rank].send = {std::ldexp(1.0f, rank)};
    players[rank].recv = {0};
    Arrive(KeyOf({0, 1, 2, 3}), rank, "sum", &players[rank], Sum(&combined, &senders));
  }
  for (const Player& player : players) {
    EXPECT_EQ(player.told, absl::OkStatus());
    EXPECT_EQ(player.recv[0], 15.0f);
  }
  // Each host has sent one value, rather than one per core.
  EXPECT_EQ(combined, 2);
  EXPECT_EQ(senders, 4);
}

TEST_F(HostExchangeTest, EachHostCombinesAPartOfManyElements) {
  constexpr int kHosts = 3;
  Connect(kHosts, 1);
  std::vector<int64_t> combined;
  Player players[kHosts];
  for (int rank = 0; rank < kHosts; ++rank) {
    players[rank].send.assign(kElementsInParts, static_cast<float>(1 << rank));
    players[rank].recv.resize(kElementsInParts);
    Arrive(KeyOf({0, 1, 2}), rank, "sum", &players[rank], SumOfMany([&](int64_t elements) {
             combined.push_back(elements);
             return absl::OkStatus();
           }));
  }
  for (const Player& player : players) {
    EXPECT_EQ(player.told, absl::OkStatus());
    EXPECT_EQ(player.recv, std::vector<float>(kElementsInParts, 7.0f));
  }
  // This host's own values for each host, and then its part from all hosts.
  EXPECT_EQ(combined.size(), kHosts * (kHosts + 1));
  EXPECT_EQ(std::accumulate(combined.begin(), combined.end(), int64_t{0}),
            (kHosts + 1) * kElementsInParts);
}

// Records the names under which this host would meet others, and how much it would send to each.
class NotedLinks : public HostLinks {
 public:
  using HostLinks::HostLinks;

  void Exchange(const std::string& name, const Messages& sent, const std::set<Host>& /*from*/,
                Done /*done*/) override {
    names.push_back(name);
    const size_t header = HostMessage("", 0).tensor().TotalBytes();
    for (const auto& [host, message] : sent) {
      bytes[host.value()] = message.tensor().TotalBytes() - header;
    }
  }
  void Abort(const absl::Status& /*status*/) override {}
  std::string Describe(absl::Duration /*age*/) const override { return ""; }

  std::vector<std::string> names;
  std::map<int, size_t> bytes;
};

// Rank 1 of 3 hosts with one core each sends to the others.
class SentBytesTest : public HostExchangeTest {
 protected:
  using Targets = std::optional<std::vector<Rank>>;

  // It sends 6 elements, and receives `elements`.
  std::map<int, size_t> Sent(int64_t elements, const Targets& targets,
                             const CollectiveOperation& operation) {
    Connect(3, 1);
    const Pod pod = MakePod(3, 1, 1);
    const auto links = std::make_shared<NotedLinks>(pod, HostsOfPod(pod));
    tables_[1]->Connect(kRun, links);
    CollectiveParticipant participant;
    participant.rank = Rank(1);
    participant.elements = elements;
    participant.send = {send_.data()};
    participant.send_bytes = static_cast<int64_t>(send_.size() * sizeof(float));
    participant.recv = {recv_.data()};
    participant.targets = targets;
    participant.done = [](const absl::Status&) {};
    tables_[1]->Arrive(KeyOf({0, 1, 2}), 3, "any", std::move(participant), operation);
    return links->bytes;
  }

  std::vector<float> send_ = std::vector<float>(6, 1.0f), recv_ = std::vector<float>(6);
};

TEST_F(SentBytesTest, AHostReceivesOnlyItsPartOfAReduceScatter) {
  CollectiveOperation scatter = SumOfMany();
  scatter.combined_elements = 6;
  EXPECT_EQ(Sent(2, std::nullopt, scatter), (std::map<int, size_t>{{0, 8}, {2, 8}}));
}

TEST_F(SentBytesTest, OnlyTheTargetsReceive) {
  EXPECT_EQ(Sent(6, std::nullopt, Never()), (std::map<int, size_t>{{0, 24}, {2, 24}}));
  const Targets some = {{Rank(0), Rank(1)}};
  EXPECT_EQ(Sent(6, some, Never()), (std::map<int, size_t>{{0, 24}, {2, 0}}));
  const Targets none = std::vector<Rank>();
  EXPECT_EQ(Sent(6, none, Never()), (std::map<int, size_t>{{0, 0}, {2, 0}}));
}

// All hosts must get the same sum, even though each combines its own values first.
TEST_F(HostExchangeTest, SumsAreEqualBitForBit) {
  Connect(2, 2);
  const float values[] = {1e8f, 1, -1e8f, 1};
  Player players[4];
  for (int rank = 0; rank < 4; ++rank) {
    players[rank].send = {values[rank]};
    players[rank].recv = {7};
    Arrive(KeyOf({0, 1, 2, 3}), rank, "sum", &players[rank], Sum());
  }
  const float on_first = values[0] + values[1], on_second = values[2] + values[3];
  for (const Player& player : players) {
    EXPECT_EQ(player.told, absl::OkStatus());
    EXPECT_EQ(player.recv[0], on_first + on_second);
  }
}

TEST_F(HostExchangeTest, MeetingsOfOneKeyAreNotMixedUp) {
  Connect(2, 2);
  const CollectiveKey key = KeyOf({0, 1, 2, 3});
  // An operation of two buffers, which arrive one after another on each rank.
  Player players[4][2];
  for (int rank : {3, 1, 0, 2}) {
    for (int buffer : {0, 1}) {
      Player& player = players[rank][buffer];
      player.send = {10.0f * rank + buffer};
      player.recv.resize(4);
      Arrive(key, rank, "all-gather", &player, Gather(1));
      EXPECT_FALSE(rank != 2 && player.told.has_value());
    }
  }
  for (int rank = 0; rank < 4; ++rank) {
    for (int buffer : {0, 1}) {
      EXPECT_EQ(players[rank][buffer].told, absl::OkStatus());
      EXPECT_EQ(players[rank][buffer].recv,
                (std::vector<float>{0.0f + buffer, 10.0f + buffer, 20.0f + buffer, 30.0f + buffer}))
          << rank;
    }
  }
}

// One host may be many operations ahead of another.
TEST_F(HostExchangeTest, HostsMeetInTheOrderOfTheirOperations) {
  constexpr int kRounds = 5;
  Connect(2, 1);
  Player players[2][kRounds];
  for (int rank : {1, 0}) {
    for (int round = 0; round < kRounds; ++round) {
      Player& player = players[rank][round];
      player.send = {10.0f * rank + round};
      player.recv.resize(2);
      Arrive(KeyOf({0, 1}), rank, "all-gather", &player, Gather(1));
      EXPECT_EQ(player.told.has_value(), rank == 0);
    }
  }
  for (const auto& of_rank : players) {
    for (int round = 0; round < kRounds; ++round) {
      EXPECT_EQ(of_rank[round].told, absl::OkStatus());
      EXPECT_EQ(of_rank[round].recv, (std::vector<float>{0.0f + round, 10.0f + round}));
    }
  }
}

// Messages of different meetings may overtake each other.
TEST_F(HostExchangeTest, EachMeetingHasANameThatItsHostsShare) {
  Connect(2, 1);
  CollectiveKey of_module = KeyOf({0, 1}), of_other_op = KeyOf({0, 1});
  of_module.cross_module = true;
  of_other_op.op_id = 2;
  const CollectiveKey keys[] = {KeyOf({0, 1}), of_module, of_other_op, KeyOf({1, 0})};
  std::vector<std::vector<std::string>> names;
  // Never finishes, because nobody meets anybody here.
  Player player = {{1}, {0, 0}, std::nullopt};
  for (int host : {0, 1}) {
    const Pod pod = MakePod(2, 1, host);
    const auto links = std::make_shared<NotedLinks>(pod, HostsOfPod(pod));
    tables_[host]->Connect(kRun, links);
    for (const CollectiveKey& key : keys) {
      for (int round = 0; round < 3; ++round) {
        Arrive(key, key.cores[Rank(0)] == Core(host) ? 0 : 1, "all-gather", &player, Gather(1));
      }
    }
    names.push_back(links->names);
    EXPECT_EQ(std::set<std::string>(links->names.begin(), links->names.end()).size(), 12u);
  }
  EXPECT_EQ(names[0], names[1]);
}

TEST_F(HostExchangeTest, GroupsOfOneRunAreApart) {
  Connect(2, 2);
  const std::vector<int> groups[] = {{0, 2}, {1, 3}, {2, 0}};
  Player players[3][2];
  for (int rank : {0, 1}) {
    for (int group : {0, 1, 2}) {
      Player& player = players[group][rank];
      player.send = {10.0f * group + rank};
      player.recv.resize(2);
      Arrive(KeyOf(groups[group]), rank, "all-gather", &player, Gather(1));
    }
  }
  for (int group : {0, 1, 2}) {
    for (const Player& player : players[group]) {
      EXPECT_EQ(player.told, absl::OkStatus());
      EXPECT_EQ(player.recv, (std::vector<float>{10.0f * group, 10.0f * group + 1}));
    }
  }
}

TEST_F(HostExchangeTest, ARunThatHasFinishedIsForgotten) {
  Connect(2, 1);
  Player first, second[2];
  first.send = {1};
  first.recv.resize(2);
  second[0] = second[1] = first;
  Arrive(KeyOf({0, 1}), 0, "all-gather", &first, Gather(1));
  for (const auto& table : tables_) table->Abort(kRun, absl::CancelledError("cancelled"));
  EXPECT_EQ(first.told, absl::CancelledError("cancelled"));
  // The links belong to another launch, which counts from the beginning.
  for (int host : {0, 1}) {
    tables_[host]->Finish(kRun);
    const Pod pod = MakePod(2, 1, host);
    links_[host] =
        MakeHostLinks(pod, HostsOfPod(pod), "8", tensorflow::FrameAndIter(0, 0), rendezvous_.get(),
                      [](const std::function<void()>& work) { work(); });
    tables_[host]->Connect(kRun, links_[host]);
  }
  for (int rank : {0, 1}) Arrive(KeyOf({0, 1}), rank, "all-gather", &second[rank], Gather(1));
  for (const Player& player : second) EXPECT_EQ(player.told, absl::OkStatus());
}

TEST_F(HostExchangeTest, CoresOfOneHostNeedNoOther) {
  Connect(2, 2);
  Player players[2];
  for (int rank : {1, 0}) {
    EXPECT_FALSE(players[1].told.has_value());
    players[rank].send = {1.0f + rank};
    players[rank].recv.resize(2);
    // On the second host, core 2 is the first one.
    Arrive(KeyOf({2, 3}), rank, "all-gather", &players[rank], Gather(1));
  }
  for (const Player& player : players) {
    EXPECT_EQ(player.told, absl::OkStatus());
    EXPECT_EQ(player.recv, (std::vector<float>{1, 2}));
  }
  // Not even failed links matter.
  links_[0]->Abort(absl::CancelledError("over"));
  Player alone = {{1}, {0}, std::nullopt};
  Arrive(KeyOf({0}), 0, "all-gather", &alone, Gather(1));
  EXPECT_EQ(alone.told, absl::OkStatus());
}

// Each core has its own thread, and messages between hosts are sent on others.
TEST_F(HostExchangeTest, CoresOnThreadsOfTheirOwnMeetAgainAndAgain) {
  constexpr int kRounds = 200;
  ComputePool pool;
  Connect(2, 2, [&pool](std::function<void()> work) { pool.Schedule(std::move(work)); });
  const CollectiveKey key = KeyOf({0, 1, 2, 3});
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      for (int round = 0; round < kRounds; ++round) {
        const float sent = static_cast<float>(round * (rank + 1));
        float sum = 0;
        absl::Notification ended;
        absl::Status told;
        CollectiveParticipant participant;
        participant.rank = Rank(rank);
        participant.elements = 1;
        participant.send = {&sent};
        participant.send_bytes = sizeof(sent);
        participant.recv = {&sum};
        participant.done = [&](absl::Status status) {
          told = std::move(status);
          ended.Notify();
        };
        TableOf(Core(rank)).Arrive(key, 4, "all-reduce", std::move(participant), Sum());
        ended.WaitForNotification();
        if (!told.ok() || sum != static_cast<float>(10 * round)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace tf_tpu_ext
