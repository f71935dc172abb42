#include "cc/base/wait_monitor.h"

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

constexpr absl::Duration kShort = absl::Milliseconds(20);
constexpr absl::Duration kTestLimit = absl::Seconds(20);

TEST(WaitMonitorTest, TellsAWaitThatLastsTooLong) {
  WaitMonitor monitor([] { return kShort; });
  absl::Notification expired;
  monitor.Begin([&](absl::Duration waited) {
    EXPECT_EQ(waited, kShort);
    expired.Notify();
  });
  ASSERT_TRUE(expired.WaitForNotificationWithTimeout(kTestLimit));
}

TEST(WaitMonitorTest, AWaitThatEndsInTimeIsNotTold) {
  // Long enough to end the wait on a busy machine.
  WaitMonitor monitor([] { return absl::Milliseconds(300); });
  std::atomic<bool> expired{false};
  const auto id = monitor.Begin([&](absl::Duration) { expired = true; });
  monitor.End(id);
  // Waits expire in the order of their deadlines: if this one could still expire, it would do so
  // before the later one.
  absl::Notification later;
  monitor.Begin([&](absl::Duration) { later.Notify(); });
  ASSERT_TRUE(later.WaitForNotificationWithTimeout(kTestLimit));
  EXPECT_FALSE(expired);
}

TEST(WaitMonitorTest, EndingOneWaitLeavesTheOthers) {
  WaitMonitor monitor([] { return kShort; });
  absl::Notification second;
  std::atomic<bool> first{false};
  const auto id = monitor.Begin([&](absl::Duration) { first = true; });
  monitor.Begin([&](absl::Duration) { second.Notify(); });
  // Idempotent, and unknown numbers are ignored.
  monitor.End(id);
  monitor.End(id);
  monitor.End(0);
  monitor.End(id + 1000);
  ASSERT_TRUE(second.WaitForNotificationWithTimeout(kTestLimit));
  EXPECT_FALSE(first);
  monitor.End(id);
}

TEST(WaitMonitorTest, LimitIsAskedAtEveryBegin) {
  std::atomic<int64_t> milliseconds{3600 * 1000};
  WaitMonitor monitor([&] { return absl::Milliseconds(milliseconds.load()); });
  std::atomic<bool> old_expired{false};
  absl::Notification fresh;
  monitor.Begin([&](absl::Duration) { old_expired = true; });
  milliseconds = 10;
  monitor.Begin([&](absl::Duration waited) {
    EXPECT_EQ(waited, absl::Milliseconds(10));
    fresh.Notify();
  });
  ASSERT_TRUE(fresh.WaitForNotificationWithTimeout(kTestLimit));
  EXPECT_FALSE(old_expired);
}

TEST(WaitMonitorTest, ExpiryMayBeginAndEndWaits) {
  WaitMonitor monitor([] { return kShort; });
  absl::Notification again;
  WaitMonitor::WaitId id = 0;
  absl::Notification known;
  id = monitor.Begin([&](absl::Duration) {
    known.WaitForNotification();
    monitor.End(id);
    monitor.Begin([&](absl::Duration) { again.Notify(); });
  });
  known.Notify();
  ASSERT_TRUE(again.WaitForNotificationWithTimeout(kTestLimit));
}

TEST(WaitMonitorTest, ExpiriesThatBlockElsewhereHoldNoOtherUp) {
  std::vector<std::thread> threads;
  absl::Notification second;
  {
    WaitMonitor monitor([] { return kShort; },
                        [&](std::function<void()> work) { threads.emplace_back(std::move(work)); });
    monitor.Begin([&](absl::Duration) { second.WaitForNotificationWithTimeout(kTestLimit); });
    monitor.Begin([&](absl::Duration) { second.Notify(); });
    EXPECT_TRUE(second.WaitForNotificationWithTimeout(kTestLimit));
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(WaitMonitorTest, DestructionForgetsOpenWaits) {
  std::atomic<bool> expired{false};
  {
    WaitMonitor monitor([] { return absl::Hours(1); });
    monitor.Begin([&](absl::Duration) { expired = true; });
  }
  {
    const WaitMonitor unused([] { return kShort; });
  }
  // This line is reached long before the hour is over.
  EXPECT_FALSE(expired);
}

TEST(WaitMonitorTest, ManyThreads) {
  constexpr int kThreads = 4, kWaits = 500;
  std::atomic<int> expired{0};
  WaitMonitor monitor([] { return kShort; });
  absl::BlockingCounter left(kThreads * kWaits / 2);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&] {
      for (int wait = 0; wait < kWaits; ++wait) {
        if (wait % 2 == 0) {
          monitor.Begin([&](absl::Duration) {
            ++expired;
            left.DecrementCount();
          });
        } else {
          // Other waits of this thread are older, so this one can't expire before them.
          monitor.End(monitor.Begin([](absl::Duration) {}));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  left.Wait();
  EXPECT_EQ(expired, kThreads * kWaits / 2);
}

}  // namespace
}  // namespace tf_tpu_ext
