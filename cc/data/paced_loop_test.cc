#include "cc/data/paced_loop.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "xla/tsl/framework/cancellation.h"

namespace tf_tpu_ext {
namespace {

TEST(PacedLoopTest, CancellationEndsEveryPauseAtOnce) {
  // The pause is far longer than the test may take, so one missed cancellation fails it.
  constexpr absl::Duration kPause = absl::Seconds(20);
  absl::Duration longest;
  for (int repetition = 0; repetition < 3000; ++repetition) {
    tsl::CancellationManager cancellation;
    std::atomic<int> rounds = 0;
    std::thread loop([&] { RunPaced(cancellation, kPause, kPause, [&] { ++rounds; }); });
    while (rounds == 0) std::this_thread::yield();
    const absl::Time start = absl::Now();
    cancellation.StartCancel();
    loop.join();
    longest = std::max(longest, absl::Now() - start);
    EXPECT_EQ(rounds, 1);
    ASSERT_LT(longest, absl::Seconds(2)) << "in repetition " << repetition;
  }
}

TEST(PacedLoopTest, CancellationDuringWorkEndsTheLoopAfterIt) {
  tsl::CancellationManager cancellation;
  int rounds = 0;
  RunPaced(cancellation, absl::Seconds(20), absl::Seconds(20), [&] {
    ++rounds;
    cancellation.StartCancel();
  });
  EXPECT_EQ(rounds, 1);
}

TEST(PacedLoopTest, DoesNothingAfterCancellation) {
  tsl::CancellationManager cancellation;
  cancellation.StartCancel();
  RunPaced(cancellation, absl::Seconds(20), absl::Seconds(20), [] { FAIL() << "worked"; });
}

TEST(PacedLoopTest, PausesDoubleUpToTheLongest) {
  tsl::CancellationManager cancellation;
  std::vector<absl::Time> starts;
  RunPaced(cancellation, absl::Milliseconds(20), absl::Milliseconds(80), [&] {
    starts.push_back(absl::Now());
    if (starts.size() == 6) cancellation.StartCancel();
  });
  ASSERT_EQ(starts.size(), 6);
  const int pauses_ms[] = {20, 40, 80, 80, 80};
  for (int i = 0; i < 5; ++i) {
    // A busy machine may lengthen a pause, never shorten it.
    EXPECT_GE(starts[i + 1] - starts[i], absl::Milliseconds(pauses_ms[i])) << i;
  }
  EXPECT_LT(starts[5] - starts[0], absl::Seconds(3));
}

TEST(PacedLoopTest, TheFirstPauseIsNoLongerThanTheLongest) {
  tsl::CancellationManager cancellation;
  int rounds = 0;
  const absl::Time start = absl::Now();
  RunPaced(cancellation, absl::Hours(1), absl::Milliseconds(1), [&] {
    if (++rounds == 3) cancellation.StartCancel();
  });
  EXPECT_EQ(rounds, 3);
  EXPECT_LT(absl::Now() - start, absl::Minutes(1));
}

}  // namespace
}  // namespace tf_tpu_ext
