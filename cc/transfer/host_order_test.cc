#include "cc/transfer/host_order.h"

#include <set>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

TEST(HostOrderTest, WaitsDependOnSeedStepAndCore) {
  const HostOrder order(1, 1);
  EXPECT_EQ(order.Wait(Slot(0), 0), HostOrder(1, 1).Wait(Slot(0), 0));
  std::set<absl::Duration> waits;
  for (int i = 0; i < 50; ++i) {
    waits.insert(HostOrder(i, 1).Wait(Slot(0), 0));
    waits.insert(HostOrder(1, i).Wait(Slot(0), 0));
    waits.insert(order.Wait(Slot(i), 0));
    waits.insert(order.Wait(Slot(0), i));
  }
  EXPECT_GT(waits.size(), 100u);
  EXPECT_EQ(*waits.begin(), absl::ZeroDuration());
  EXPECT_LT(*waits.rbegin(), absl::Milliseconds(2));
}

TEST(HostOrderTest, MakesTheCall) {
  HostOrder order(1, 1);
  absl::Notification called;
  order.Later(Slot(0), [&] { called.Notify(); });
  EXPECT_TRUE(called.WaitForNotificationWithTimeout(absl::Seconds(60)));
}

}  // namespace
}  // namespace tf_tpu_ext
