// Tests how the hosts of a pod meet, using the test's own operations.
#include "cc/runtime/host_exchange.h"

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
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

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "absl/types/span.h"
#include "cc/base/compute_pool.h"
#include "cc/pods/host_links.h"
#include "cc/pods/pod_testing.h"
#include "cc/runtime/pod_of_tables.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/rendezvous.h"

namespace tf_tpu_ext {
namespace {

class HostExchangeTest : public PodOfTables {
 protected:
  using All = absl::Span<const CollectiveParticipant>;

  // A participant's memory, and the status it receives.
  struct Player {
    std::vector<float> send;
    std::vector<float> recv;
    std::optional<absl::Status> told;
  };

  static CollectiveKey KeyOf(const std::vector<int>& cores, RunId run = kRun) {
    return {run, /*op_id=*/1, /*cross_module=*/false, ByNumber<Rank, Core>(ToNumbers<Core>(cores))};
  }

  // Arrives on the rank's own host.
  void Arrive(const CollectiveKey& key, int rank, const std::string& name, Player* player,
              const CollectiveOperation& operation) {
    CollectiveParticipant participant;
    participant.rank = Rank(rank);
    participant.elements = static_cast<int64_t>(player->send.size());
    participant.send = {player->send.data()};
    participant.send_bytes = static_cast<int64_t>(player->send.size() * sizeof(float));
    participant.recv = {player->recv.data()};
    participant.done = [player](absl::Status told) {
      EXPECT_FALSE(player->told.has_value()) << "told twice";
      player->told = std::move(told);
    };
    TableOf(key.cores[Rank(rank)])
        .Arrive(key, key.cores.size(), name, std::move(participant), operation);
  }

  // Each participant receives what each rank sends, `count` elements.
  static CollectiveOperation Gather(size_t count) {
    return [count](All all) {
      for (const CollectiveParticipant& target : all) {
        if (target.recv.empty()) continue;
        for (const CollectiveParticipant& source : all) {
          std::memcpy(static_cast<float*>(target.recv[0]) + source.rank.value() * count,
                      source.send[0], count * sizeof(float));
        }
      }
      return absl::OkStatus();
    };
  }

  // Each participant receives the sum of one value per rank. The counters may be null.
  static CollectiveOperation Sum(std::atomic<int>* combined = nullptr,
                                 std::atomic<int>* senders = nullptr) {
    CollectiveOperation sum = [senders](All all) {
      std::optional<float> result;
      for (const CollectiveParticipant& source : all) {
        if (source.send.empty()) continue;
        const float value = *static_cast<const float*>(source.send[0]);
        result = result.has_value() ? *result + value : value;
        if (senders != nullptr) ++*senders;
      }
      for (const CollectiveParticipant& target : all) {
        if (!target.recv.empty()) *static_cast<float*>(target.recv[0]) = *result;
      }
      return absl::OkStatus();
    };
    sum.combine = [combined](const std::vector<const void*>& sent, int64_t elements, void* result) {
      EXPECT_EQ(elements, 1);
      if (combined != nullptr) ++*combined;
      float value = *static_cast<const float*>(sent[0]);
      for (size_t i = 1; i < sent.size(); ++i) value += *static_cast<const float*>(sent[i]);
      std::memcpy(result, &value, sizeof(value));
      return absl::OkStatus();
    };
    sum.combined_elements = 1;
    return sum;
  }

  // The same for many values, using only `combine`. `before` is called first.
  static CollectiveOperation SumOfMany(std::function<absl::Status(int64_t elements)> before =
                                           [](int64_t) { return absl::OkStatus(); }) {
    CollectiveOperation sum = Never();
    sum.combine = [before = std::move(before)](const std::vector<const void*>& sent,
                                               int64_t elements, void* result) {
      const absl::Status status = before(elements);
      float* const sums = static_cast<float*>(result);
      std::fill_n(sums, elements, 0.0f);
      for (const void* each : sent) {
        for (int64_t i = 0; i < elements; ++i) sums[i] += static_cast<const float*>(each)[i];
      }
      return status;
    };
    sum.combined_elements = kElementsInParts;
    return sum;
  }

  static CollectiveOperation Never() {
    return [](All) -> absl::Status {
      ADD_FAILURE() << "the operation ran";
      return absl::OkStatus();
    };
  }
};

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

TEST_F(HostExchangeTest, AHostThatIsGoneFailsWhoWaitsForIt) {
  Connect(2, 2);
  Player players[2];
  for (int rank : {0, 1}) {
    players[rank].send = {1};
    players[rank].recv = {0};
    Arrive(KeyOf({0, 1, 2, 3}), rank, "all-reduce", &players[rank], Sum());
  }
  rendezvous_->StartAbort(absl::UnavailableError("the worker is gone"));
  for (const Player& player : players) {
    ASSERT_TRUE(player.told.has_value());
    EXPECT_TRUE(absl::IsUnavailable(*player.told)) << *player.told;
    EXPECT_TRUE(absl::StrContains(player.told->message(), TaskOfHost(1))) << *player.told;
  }
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

TEST_F(HostExchangeTest, DescribeSaysWhichHostIsMissing) {
  Connect(2, 2);
  Player players[2];
  for (int rank : {0, 1}) {
    players[rank].send = {1};
    players[rank].recv = {0};
    Arrive(KeyOf({0, 1, 2, 3}), rank, "all-reduce", &players[rank], Sum());
  }
  const std::string description = tables_[0]->Describe(kRun);
  EXPECT_TRUE(absl::StrContains(description, TaskOfHost(1))) << description;
  EXPECT_EQ(tables_[0]->Describe(kRun, absl::Hours(1)), "");
  EXPECT_EQ(tables_[1]->Describe(kRun), "");
  tables_[0]->Abort(kRun, absl::CancelledError("over"));
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
