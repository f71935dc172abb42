#include "cc/base/core_threads.h"

#include <pthread.h>

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <thread>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

CoreThreads::Options Threads(int usual, int max) {
  CoreThreads::Options options;
  options.usual_threads = usual;
  options.max_threads = max;
  return options;
}

TEST(CoreThreadsTest, RunsAllWorkBeforeItEnds) {
  std::atomic<int> done{0};
  {
    CoreThreads threads(Threads(2, 8));
    for (int i = 0; i < 10000; ++i) threads.Schedule([&] { ++done; });
  }
  EXPECT_EQ(done, 10000);
}

TEST(CoreThreadsTest, WorkMaySchedule) {
  std::atomic<int> done{0};
  {
    CoreThreads threads(Threads(1, 1));
    for (int i = 0; i < 100; ++i) {
      threads.Schedule([&] { threads.Schedule([&] { threads.Schedule([&] { ++done; }); }); });
    }
  }
  EXPECT_EQ(done, 100);
}

TEST(CoreThreadsTest, UsualNumberWorksWhileNoneIsBlocked) {
  absl::Mutex mutex;
  std::set<int> ids;
  {
    CoreThreads::Options options = Threads(2, 8);
    // On a busy machine, even threads that are not blocked may make no progress for a while.
    options.patience = absl::Hours(1);
    CoreThreads threads(options);
    for (int i = 0; i < 10000; ++i) {
      threads.Schedule([&] {
        absl::MutexLock lock(&mutex);
        ids.insert(threads.CurrentThreadId());
      });
    }
  }
  EXPECT_LE(ids.size(), 2);
  EXPECT_GE(*ids.begin(), 0);
}

TEST(CoreThreadsTest, BlockedThreadsAreReplaced) {
  constexpr int kBlocked = 30;
  CoreThreads threads(Threads(2, kBlocked + 1));
  absl::BlockingCounter started(kBlocked);
  absl::Notification release;
  for (int i = 0; i < kBlocked; ++i) {
    threads.Schedule([&] {
      started.DecrementCount();
      release.WaitForNotification();
    });
  }
  started.Wait();
  // Work that is scheduled afterwards runs too, one item after another.
  const absl::Time start = absl::Now();
  for (int i = 0; i < 20; ++i) {
    absl::Notification done;
    threads.Schedule([&] { done.Notify(); });
    ASSERT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(20)));
  }
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  release.Notify();
}

TEST(CoreThreadsTest, NeverMoreThanTheMaximum) {
  std::atomic<int> now{0}, most{0};
  std::atomic<bool> reached{false};
  absl::Notification three;
  {
    CoreThreads threads(Threads(1, 3));
    for (int i = 0; i < 30; ++i) {
      threads.Schedule([&] {
        const int running = ++now;
        int seen = most;
        while (running > seen && !most.compare_exchange_weak(seen, running)) {
        }
        if (running == 3 && !reached.exchange(true)) three.Notify();
        three.WaitForNotificationWithTimeout(absl::Seconds(20));
        for (int turn = 0; turn < 100; ++turn) std::this_thread::yield();
        --now;
      });
    }
  }
  EXPECT_EQ(most, 3);
}

TEST(CoreThreadsTest, DeletesWorkOnItsThread) {
  CoreThreads threads(Threads(1, 1));
  absl::Notification deleted;
  int id = -1;
  std::shared_ptr<int> held(new int(0), [&](int* value) {
    delete value;
    id = threads.CurrentThreadId();
    deleted.Notify();
  });
  threads.Schedule([held = std::move(held)] {});
  deleted.WaitForNotification();
  EXPECT_EQ(id, 0);
  EXPECT_EQ(threads.CurrentThreadId(), -1);
}

TEST(CoreThreadsTest, AThreadDoesItsOwnWorkNext) {
  CoreThreads threads(Threads(2, 8));
  absl::Notification done;
  EXPECT_EQ(CoreThreads::OfCaller(), nullptr);
  threads.Schedule([&] {
    EXPECT_EQ(CoreThreads::OfCaller(), &threads);
    const int first = threads.CurrentThreadId();
    threads.ScheduleAfterCurrent([&, first] {
      EXPECT_EQ(threads.CurrentThreadId(), first);
      done.Notify();
    });
  });
  done.WaitForNotification();
}

TEST(CoreThreadsTest, OthersTakeTheWorkOfAThreadThatDoesNotReturn) {
  CoreThreads threads(Threads(2, 8));
  absl::Notification done;
  threads.Schedule([&] {
    threads.ScheduleAfterCurrent([&] { done.Notify(); });
    done.WaitForNotification();
  });
  done.WaitForNotification();
}

TEST(CoreThreadsTest, WorkThatIsNotUrgentIsDone) {
  CoreThreads threads(Threads(2, 8));
  for (int i = 0; i < 200; ++i) {
    absl::Notification first, second;
    threads.ScheduleSoon([&] { first.Notify(); });
    // Occasionally after the watching thread has gone to sleep.
    if (i % 20 == 0) absl::SleepFor(absl::Milliseconds(15));
    threads.ScheduleSoon([&] { second.Notify(); });
    ASSERT_TRUE(first.WaitForNotificationWithTimeout(absl::Seconds(20)));
    ASSERT_TRUE(second.WaitForNotificationWithTimeout(absl::Seconds(20)));
  }
}

TEST(CoreThreadsTest, WorkThatGoesOnForEverLeavesTheQueueItsTurn) {
  constexpr int kRounds = 1000;
  std::atomic<bool> stop{false};
  std::atomic<int> rounds{0};
  absl::Notification going, done;
  std::function<void()> go_on;  // The threads may still be running it when they are told to end.
  CoreThreads threads(Threads(2, 8));
  go_on = [&] {
    if (++rounds == kRounds) going.Notify();
    if (!stop) threads.ScheduleAfterCurrent(go_on);
  };
  for (int i = 0; i < 2; ++i) threads.Schedule(go_on);
  going.WaitForNotification();
  threads.Schedule([&] { done.Notify(); });
  EXPECT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(20)));
  stop = true;
}

TEST(CoreThreadsTest, AThreadMayEndInItsWork) {
  // This is how Python ends a thread that calls it during shutdown. That thread's work never
  // returns, so these threads can't be destroyed.
  static auto* const threads = new CoreThreads(Threads(2, 8));
  absl::Notification going, done;
  threads->Schedule([&] {
    going.Notify();
    pthread_detach(pthread_self());  // Nobody joins it.
    pthread_exit(nullptr);
  });
  going.WaitForNotification();
  threads->Schedule([&] { done.Notify(); });
  EXPECT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(20)));
}

}  // namespace
}  // namespace tf_tpu_ext
