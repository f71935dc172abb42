#include "cc/transfer/host_order.h"

#include <map>
#include <set>
#include <string>

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

TEST(HostOrderTest, NotesWhoCalls) {
  HostOrder order(1, 1);
  EXPECT_TRUE(order.callers().empty());
  order.Note(Slot(0), "a");
  order.Note(Slot(2), "a");
  order.Note(Slot(2), "b");
  order.Note(Slot(2), "b");
  const std::map<std::string, std::set<Slot>> callers = {{"a", {Slot(0), Slot(2)}},
                                                         {"b", {Slot(2)}}};
  EXPECT_EQ(order.callers(), callers);
}

}  // namespace
}  // namespace tf_tpu_ext
