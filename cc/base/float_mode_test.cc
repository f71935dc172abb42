#include "cc/base/float_mode.h"

#include <cstddef>
#include <limits>

#include "absl/synchronization/notification.h"
#include "cc/base/core_threads.h"
#include "cc/base/waiting_threads.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

bool IsDenormalZero() {
  const volatile float denormal = std::numeric_limits<float>::denorm_min();
  const volatile float doubled = denormal * 2;
  return doubled == 0;
}

template <typename Threads>
bool IsDenormalZeroOn(Threads* threads) {
  bool is_zero = false;
  absl::Notification done;
  threads->Schedule([&] {
    is_zero = IsDenormalZero();
    done.Notify();
  });
  done.WaitForNotification();
  return is_zero;
}

TEST(FloatModeTest, HoldsWhileItExists) {
  EXPECT_FALSE(IsDenormalZero());
  {
    const TensorFlowFloatMode float_mode;
    EXPECT_TRUE(IsDenormalZero());
  }
  EXPECT_FALSE(IsDenormalZero());
}

TEST(FloatModeTest, OfThreadsThatRunOps) {
  CoreThreads threads{CoreThreads::Options()};
  EXPECT_TRUE(IsDenormalZeroOn(&threads));
}

TEST(FloatModeTest, OfThreadsThatRunPrograms) {
  WaitingThreads threads(/*num_working=*/1, size_t{1} << 20);
  EXPECT_TRUE(IsDenormalZeroOn(&threads));
}

}  // namespace
}  // namespace tf_tpu_ext
