#include "cc/transfer/channel_table.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/blocking_counter.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

using Table = ChannelTable<std::string>;

constexpr int64_t kLaunch = 7;

ChannelKey Key(int64_t launch = kLaunch, std::string name = "loss", int place = 0) {
  return {launch, std::move(name), place};
}

// What a receiver or a sender was told.
struct Inbox {
  std::optional<absl::StatusOr<std::string>> message;
  Table::Received Receiver() {
    return [this](absl::StatusOr<std::string> told) {
      EXPECT_FALSE(message.has_value()) << "told twice";
      message = std::move(told);
    };
  }
  bool waits() const { return !message.has_value(); }
  std::string text() const {
    if (waits()) return "<waits>";
    return message->ok() ? **message : message->status().ToString();
  }
};

struct Receipt {
  std::optional<absl::Status> status;
  Table::Sent Sender() {
    return [this](absl::Status told) {
      EXPECT_FALSE(status.has_value()) << "told twice";
      status = std::move(told);
    };
  }
  bool waits() const { return !status.has_value(); }
};

void SendNow(Table& table, const ChannelKey& key, std::string message) {
  Receipt receipt;
  table.Send(key, std::move(message), Table::kUnbounded, receipt.Sender());
  EXPECT_EQ(receipt.status, absl::OkStatus());
}

TEST(ChannelTableTest, SentBeforeReceived) {
  Table table;
  SendNow(table, Key(), "a");
  SendNow(table, Key(), "b");
  Inbox first, second;
  table.Receive(Key(), first.Receiver());
  table.Receive(Key(), second.Receiver());
  EXPECT_EQ(first.text(), "a");
  EXPECT_EQ(second.text(), "b");
  EXPECT_TRUE(table.IsIdle(kLaunch));
}

TEST(ChannelTableTest, ReceivedBeforeSent) {
  Table table;
  Inbox first, second;
  table.Receive(Key(), first.Receiver());
  table.Receive(Key(), second.Receiver());
  EXPECT_TRUE(first.waits());
  EXPECT_FALSE(table.IsIdle(kLaunch));
  SendNow(table, Key(), "a");
  EXPECT_EQ(first.text(), "a");
  EXPECT_TRUE(second.waits());
  SendNow(table, Key(), "b");
  EXPECT_EQ(second.text(), "b");
  EXPECT_TRUE(table.IsIdle(kLaunch));
}

TEST(ChannelTableTest, KeysAreSeparate) {
  const ChannelKey keys[] = {Key(), Key(kLaunch + 1), Key(kLaunch, "other"),
                             Key(kLaunch, "loss", 1), Key(kNoLaunch)};
  Table table;
  for (size_t i = 0; i < 5; ++i) SendNow(table, keys[i], std::to_string(i));
  for (size_t i = 5; i-- > 0;) {
    Inbox inbox;
    table.Receive(keys[i], inbox.Receiver());
    EXPECT_EQ(inbox.text(), std::to_string(i)) << keys[i].DebugString();
  }
}

TEST(ChannelTableTest, FullChannelMakesSendersWaitInOrder) {
  Table table;
  Receipt receipts[4];
  for (int i = 0; i < 4; ++i) {
    table.Send(Key(), std::to_string(i), /*capacity=*/2, receipts[i].Sender());
  }
  EXPECT_EQ(receipts[0].status, absl::OkStatus());
  EXPECT_EQ(receipts[1].status, absl::OkStatus());
  EXPECT_TRUE(receipts[2].waits());
  EXPECT_TRUE(receipts[3].waits());
  for (int i = 0; i < 4; ++i) {
    Inbox inbox;
    table.Receive(Key(), inbox.Receiver());
    EXPECT_EQ(inbox.text(), std::to_string(i));
    // Each message taken admits one sender.
    EXPECT_EQ(receipts[2].waits(), false);
    EXPECT_EQ(receipts[3].waits(), i < 1);
  }
  EXPECT_TRUE(table.IsIdle(kLaunch));
}

TEST(ChannelTableTest, WaitingReceiverTakesFromABoundedSenderAtOnce) {
  Table table;
  Inbox inbox;
  table.Receive(Key(), inbox.Receiver());
  Receipt receipt;
  table.Send(Key(), "a", /*capacity=*/1, receipt.Sender());
  EXPECT_EQ(receipt.status, absl::OkStatus());
  EXPECT_EQ(inbox.text(), "a");
}

TEST(ChannelTableTest, CancelledReceiverTakesNothing) {
  Table table;
  Inbox cancelled, waiting;
  const auto id = table.Receive(Key(), cancelled.Receiver());
  table.Receive(Key(), waiting.Receiver());
  EXPECT_TRUE(table.Cancel(Key(), id, absl::CancelledError("stopped")));
  EXPECT_EQ(cancelled.text(), "CANCELLED: stopped");
  SendNow(table, Key(), "a");
  EXPECT_EQ(waiting.text(), "a");
  EXPECT_FALSE(table.Cancel(Key(), id, absl::CancelledError("again")));
}

TEST(ChannelTableTest, CancelledSenderSendsNothing) {
  Table table;
  SendNow(table, Key(), "kept");
  Receipt cancelled, waiting;
  const auto id = table.Send(Key(), "dropped", /*capacity=*/1, cancelled.Sender());
  table.Send(Key(), "next", /*capacity=*/1, waiting.Sender());
  EXPECT_TRUE(table.Cancel(Key(), id, absl::CancelledError("stopped")));
  EXPECT_EQ(cancelled.status, absl::CancelledError("stopped"));
  EXPECT_TRUE(waiting.waits());
  Inbox first, second;
  table.Receive(Key(), first.Receiver());
  table.Receive(Key(), second.Receiver());
  EXPECT_EQ(first.text(), "kept");
  EXPECT_EQ(second.text(), "next");
  EXPECT_TRUE(table.IsIdle(kLaunch));
}

TEST(ChannelTableTest, CancelOfAnUnknownWaitIsFalse) {
  Table table;
  EXPECT_FALSE(table.Cancel(Key(), 1, absl::CancelledError("")));
  SendNow(table, Key(), "a");
  EXPECT_FALSE(table.Cancel(Key(), 1000, absl::CancelledError("")));
  Inbox inbox;
  table.Receive(Key(), inbox.Receiver());
  EXPECT_EQ(inbox.text(), "a");
}

TEST(ChannelTableTest, AbortFailsWaitsOfItsLaunchNowAndLater) {
  Table table;
  const absl::Status cause = absl::InternalError("core 1 failed");
  Inbox receiver, of_other_launch;
  Receipt sender;
  table.Receive(Key(), receiver.Receiver());
  table.Receive(Key(kLaunch + 1), of_other_launch.Receiver());
  SendNow(table, Key(kLaunch, "full"), "dropped");
  table.Send(Key(kLaunch, "full"), "waits", /*capacity=*/1, sender.Sender());
  table.Abort(kLaunch, cause);
  EXPECT_EQ(receiver.text(), cause.ToString());
  EXPECT_EQ(sender.status, cause);
  EXPECT_TRUE(of_other_launch.waits());

  Inbox late;
  Receipt late_sender;
  table.Receive(Key(kLaunch, "full"), late.Receiver());
  EXPECT_EQ(late.text(), cause.ToString());
  table.Send(Key(), "late", Table::kUnbounded, late_sender.Sender());
  EXPECT_EQ(late_sender.status, cause);
  SendNow(table, Key(kLaunch + 1), "a");
  EXPECT_EQ(of_other_launch.text(), "a");
}

TEST(ChannelTableTest, FirstAbortIsTheOneThatLateComersSee) {
  Table table;
  table.Abort(kLaunch, absl::InternalError("cause"));
  table.Abort(kLaunch, absl::InternalError("consequence"));
  Inbox late;
  table.Receive(Key(), late.Receiver());
  EXPECT_EQ(late.text(), "INTERNAL: cause");
}

TEST(ChannelTableTest, ForgetDropsMessagesWaitsAndTheAbort) {
  Table table;
  Inbox waiting;
  SendNow(table, Key(), "left over");
  table.Receive(Key(kLaunch, "never sent"), waiting.Receiver());
  table.Forget(kLaunch, absl::CancelledError("over"));
  EXPECT_EQ(waiting.text(), "CANCELLED: over");
  EXPECT_TRUE(table.IsIdle(kLaunch));

  table.Abort(kLaunch, absl::InternalError("failed"));
  table.Forget(kLaunch, absl::CancelledError("over"));
  Inbox fresh;
  table.Receive(Key(), fresh.Receiver());
  EXPECT_TRUE(fresh.waits());
  SendNow(table, Key(), "a");
  EXPECT_EQ(fresh.text(), "a");
}

TEST(ChannelTableTest, IsIdleLooksAtOneLaunchOnly) {
  Table table;
  SendNow(table, Key(kLaunch - 1), "a");
  SendNow(table, Key(kLaunch + 1), "b");
  EXPECT_TRUE(table.IsIdle(kLaunch));
  SendNow(table, Key(kLaunch, "", 0), "c");
  EXPECT_FALSE(table.IsIdle(kLaunch));
}

TEST(ChannelTableTest, DrainDropsMessagesAndThoseThatWaitForRoom) {
  Table table;
  const ChannelKey infeed = Key(kNoLaunch, "infeed");
  Receipt first, second;
  table.Send(infeed, "a", 1, first.Sender());
  table.Send(infeed, "b", 1, second.Sender());
  EXPECT_TRUE(second.waits());
  EXPECT_EQ(table.Drain(infeed), 2);
  EXPECT_EQ(second.status, absl::OkStatus());
  EXPECT_EQ(table.Drain(infeed), 0);
  Inbox inbox;
  table.Receive(infeed, inbox.Receiver());
  EXPECT_EQ(table.Drain(infeed), 0);
  EXPECT_TRUE(inbox.waits());
  SendNow(table, infeed, "c");
  EXPECT_EQ(inbox.text(), "c");
}

TEST(ChannelTableTest, AbortDropsWhatTheOwnerSentToCores) {
  Table table;
  const ChannelKey outfeed = Key(kNoLaunch, "outfeed");
  Receipt sent, admitted;
  table.Send(outfeed, "kept", 2, sent.Sender(), kLaunch + 1);
  sent = {};
  table.Send(outfeed, "dropped", 2, sent.Sender(), kLaunch);
  table.Send(outfeed, "admitted", 2, admitted.Sender(), kLaunch + 1);
  EXPECT_TRUE(admitted.waits());
  table.Abort(kLaunch, absl::AbortedError("failed"));
  EXPECT_EQ(admitted.status, absl::OkStatus());
  for (const char* expected : {"kept", "admitted"}) {
    Inbox inbox;
    table.Receive(outfeed, inbox.Receiver());
    EXPECT_EQ(inbox.text(), expected);
  }
  Receipt late;
  table.Send(outfeed, "late", 2, late.Sender(), kLaunch);
  EXPECT_EQ(late.status, absl::AbortedError("failed"));
  EXPECT_TRUE(table.IsIdle(kNoLaunch));
}

TEST(ChannelTableTest, CallbacksMayComeBackToTheTable) {
  Table table;
  Inbox second;
  table.Receive(Key(), [&](const absl::StatusOr<std::string>& first) {
    EXPECT_EQ(*first, "a");
    table.Receive(Key(), second.Receiver());
  });
  SendNow(table, Key(), "a");
  EXPECT_TRUE(second.waits());
  SendNow(table, Key(), "b");
  EXPECT_EQ(second.text(), "b");
}

TEST(ChannelTableTest, MovesMessagesThatCannotBeCopied) {
  ChannelTable<std::unique_ptr<int>> table;
  table.Send({1, "a", 0}, std::make_unique<int>(5), 0, [](const absl::Status&) {});
  int got = 0;
  table.Receive({1, "a", 0},
                [&](absl::StatusOr<std::unique_ptr<int>> message) { got = **message; });
  EXPECT_EQ(got, 5);
}

TEST(ChannelKeyTest, DebugStringSaysWhoseChannelItIs) {
  EXPECT_EQ(Key(3, "loss", 2).DebugString(), "channel 'loss' of core 2 of launch 3");
  EXPECT_EQ(Key(kNoLaunch, "infeed", 5).DebugString(), "the infeed of core 5");
}

// Senders and receivers on several threads: every message arrives exactly once, whatever the
// capacity.
TEST(ChannelTableTest, ManyThreadsLoseAndDoubleNothing) {
  constexpr int kThreads = 3, kMessages = 2000;
  for (const int capacity : {0, 1, 5}) {
    Table table;
    absl::Mutex mutex;
    std::multiset<std::string> received;
    absl::BlockingCounter sent(kThreads * kMessages), arrived(kThreads * kMessages);
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < kMessages; ++i) {
          table.Send(Key(), absl::StrCat(thread, ":", i), capacity,
                     [&](const absl::Status& status) {
                       EXPECT_EQ(status, absl::OkStatus());
                       sent.DecrementCount();
                     });
        }
      });
      threads.emplace_back([&] {
        for (int i = 0; i < kMessages; ++i) {
          table.Receive(Key(), [&](absl::StatusOr<std::string> message) {
            {
              absl::MutexLock lock(&mutex);
              received.insert(message.ok() ? *message : "error");
            }
            arrived.DecrementCount();
          });
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    sent.Wait();
    arrived.Wait();
    EXPECT_EQ(received.size(), kThreads * kMessages);
    EXPECT_EQ(std::set<std::string>(received.begin(), received.end()).size(), kThreads * kMessages);
    EXPECT_TRUE(table.IsIdle(kLaunch));
  }
}

TEST(ChannelTableTest, CancelAgainstSendTellsTheReceiverOnce) {
  for (int round = 0; round < 500; ++round) {
    Table table;
    std::atomic<int> told{0}, got{0};
    const auto id = table.Receive(Key(), [&](const absl::StatusOr<std::string>& message) {
      ++told;
      if (message.ok()) ++got;
    });
    bool cancelled = false;
    std::thread canceller(
        [&] { cancelled = table.Cancel(Key(), id, absl::CancelledError("stopped")); });
    SendNow(table, Key(), "a");
    canceller.join();
    ASSERT_EQ(told, 1);
    ASSERT_EQ(got, cancelled ? 0 : 1);
    // A message that nothing took is still there.
    ASSERT_EQ(table.IsIdle(kLaunch), !cancelled);
  }
}

}  // namespace
}  // namespace tf_tpu_ext
