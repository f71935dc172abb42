#include "cc/base/waiting_threads.h"

#include <atomic>
#include <cstddef>

#include "absl/synchronization/barrier.h"
#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

constexpr size_t kStackBytes = size_t{1} << 20;

TEST(WaitingThreadsTest, RunsAllWorkBeforeItEnds) {
  std::atomic<int> done{0};
  {
    WaitingThreads threads(2, kStackBytes);
    for (int i = 0; i < 10000; ++i) {
      threads.Schedule([&] { threads.Schedule([&] { ++done; }); });
    }
  }
  EXPECT_EQ(done, 10000);
}

// Each thread waits for all others, and there are many times as many as may work at once.
TEST(WaitingThreadsTest, ThreadsThatWaitAreReplaced) {
  constexpr int kMeeting = 100;
  std::atomic<int> done{0};
  {
    WaitingThreads threads(2, kStackBytes);
    for (int meeting = 0; meeting < 20; ++meeting) {
      auto* const barrier = new absl::Barrier(kMeeting);
      for (int i = 0; i < kMeeting; ++i) {
        threads.Schedule([&, barrier] {
          bool last = false;
          threads.Wait([&] { last = barrier->Block(); });
          if (last) delete barrier;
          ++done;
        });
      }
    }
  }
  EXPECT_EQ(done, 2000);
}

TEST(WaitingThreadsTest, SlotsOfThreadsThatWorkDiffer) {
  constexpr int kWorking = 3, kMeeting = 9;
  std::atomic<bool> taken[kWorking] = {};
  std::atomic<int> done{0};
  {
    WaitingThreads threads(kWorking, kStackBytes);
    EXPECT_EQ(threads.Slot(), -1);
    for (int meeting = 0; meeting < 50; ++meeting) {
      auto* const barrier = new absl::Barrier(kMeeting);
      for (int i = 0; i < kMeeting; ++i) {
        threads.Schedule([&, barrier] {
          const int slot = threads.Slot();
          ASSERT_GE(slot, 0);
          ASSERT_LT(slot, kWorking);
          EXPECT_FALSE(taken[slot].exchange(true));
          taken[slot] = false;
          bool last = false;
          threads.Wait([&] { last = barrier->Block(); });
          if (last) delete barrier;
          EXPECT_EQ(threads.Slot(), -1);
          ++done;
        });
      }
    }
  }
  EXPECT_EQ(done, 450);
}

TEST(WaitingThreadsTest, NoMoreWorkThanThereShould) {
  std::atomic<int> working{0}, most{0};
  {
    WaitingThreads threads(2, kStackBytes);
    for (int i = 0; i < 1000; ++i) {
      threads.Schedule([&] {
        const int now = ++working;
        int seen = most.load();
        while (seen < now && !most.compare_exchange_weak(seen, now)) continue;
        --working;
      });
    }
  }
  EXPECT_LE(most, 2);
  EXPECT_GE(most, 1);
}

TEST(WaitingThreadsTest, KnowsItsThreads) {
  WaitingThreads threads(1, kStackBytes), others(1, kStackBytes);
  EXPECT_FALSE(threads.IsCaller());
  absl::Notification done;
  threads.Schedule([&] {
    EXPECT_TRUE(threads.IsCaller());
    EXPECT_FALSE(others.IsCaller());
    done.Notify();
  });
  // A thread that is not one of these just waits.
  threads.Wait([&] { done.WaitForNotification(); });
}

}  // namespace
}  // namespace tf_tpu_ext
