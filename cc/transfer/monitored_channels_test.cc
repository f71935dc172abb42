#include "cc/transfer/monitored_channels.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "cc/base/tensor_testing.h"
#include "cc/base/wait_monitor_testing.h"
#include "cc/transfer/channels.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/platform/status.h"

namespace tf_tpu_ext {
namespace {

const ChannelKey kMonitored{kNoLaunch, kInfeedName, 3};

// How a wait ended, on whatever thread.
class Ending {
 public:
  // Each fails the test if it is called twice: a Notification can be notified only once.
  TensorChannels::Received received() {
    return [this](const absl::StatusOr<TensorMessage>& message) { End(message.status()); };
  }
  TensorChannels::Sent sent() {
    return [this](const absl::Status& status) { End(status); };
  }

  bool has_come() const { return ended_.HasBeenNotified(); }
  const absl::Status& Wait() {
    ended_.WaitForNotification();
    return status_;
  }

 private:
  void End(const absl::Status& status) {
    status_ = status;
    ended_.Notify();
  }

  absl::Status status_;
  absl::Notification ended_;
};

class MonitoredChannelsTest : public testing::Test {
 protected:
  ChannelUser User(int64_t owner = kNoLaunch) { return {"the op", owner, &cancellation_}; }

  void Fill() {
    for (int i = 0; i < kFeedCapacity; ++i) {
      Ending sent;
      channels_.Send(kMonitored, {}, kFeedCapacity, User(), sent.sent());
      ASSERT_TRUE(sent.has_come());
      ASSERT_TRUE(sent.Wait().ok()) << sent.Wait();
    }
  }

  TensorChannels table_;
  FakeMonitor monitor_;
  tensorflow::CancellationManager cancellation_;
  const MonitoredChannels channels_{&table_, &monitor_};
};

TEST_F(MonitoredChannelsTest, AMessageEndsTheWait) {
  std::optional<std::vector<tensorflow::Tensor>> got;
  channels_.Receive(kMonitored, User(), [&](absl::StatusOr<TensorMessage> message) {
    ASSERT_TRUE(message.ok()) << message.status();
    got = message->tensors;
  });
  EXPECT_FALSE(got.has_value());
  EXPECT_EQ(monitor_.num_waits(), 1);
  table_.Send(kMonitored, std::vector{MakeScalar<float>(7)}, kFeedCapacity,
              [](const absl::Status&) {});
  ASSERT_TRUE(got.has_value());
  ASSERT_EQ(got->size(), 1);
  EXPECT_EQ((*got)[0].scalar<float>()(), 7);
  EXPECT_EQ(monitor_.num_waits(), 0);
}

TEST_F(MonitoredChannelsTest, WhatIsThereAlreadyLeavesNoWaitBehind) {
  channels_.Send(kMonitored, {}, kFeedCapacity, User(), [](const absl::Status&) {});
  Ending received;
  channels_.Receive(kMonitored, User(), received.received());
  ASSERT_TRUE(received.has_come());
  EXPECT_TRUE(received.Wait().ok());
  EXPECT_EQ(monitor_.num_waits(), 0);
}

TEST_F(MonitoredChannelsTest, RoomEndsTheWaitOfASender) {
  Fill();
  Ending sent;
  channels_.Send(kMonitored, {}, kFeedCapacity, User(), sent.sent());
  EXPECT_FALSE(sent.has_come());
  EXPECT_EQ(monitor_.num_waits(), 1);
  table_.Receive(kMonitored, [](const absl::StatusOr<TensorMessage>&) {});
  ASSERT_TRUE(sent.has_come());
  EXPECT_TRUE(sent.Wait().ok());
  EXPECT_EQ(monitor_.num_waits(), 0);
}

TEST_F(MonitoredChannelsTest, TheLimitEndsTheWaitAndSaysOnWhat) {
  Ending received;
  channels_.Receive(kMonitored, User(), received.received());
  monitor_.Expire(absl::Minutes(2));
  ASSERT_TRUE(received.has_come());
  EXPECT_EQ(received.Wait().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(
      absl::StrContains(received.Wait().message(), "Op the op waited 2m on the infeed of core 3"))
      << received.Wait();
  EXPECT_TRUE(absl::StrContains(received.Wait().message(), kRaiseWaitLimit)) << received.Wait();

  Fill();
  Ending sent;
  channels_.Send(kMonitored, {}, kFeedCapacity, User(), sent.sent());
  monitor_.Expire();
  ASSERT_TRUE(sent.has_come());
  EXPECT_EQ(sent.Wait().code(), absl::StatusCode::kDeadlineExceeded);
  // The message disappeared along with the wait.
  EXPECT_EQ(table_.Drain(kMonitored), kFeedCapacity);
}

TEST_F(MonitoredChannelsTest, OfALaunchsChannelTheLimitNamesTheLaunch) {
  Ending received;
  channels_.Receive({12, "to_device", 1}, {"cluster", 12}, received.received());
  monitor_.Expire();
  EXPECT_TRUE(
      absl::StrContains(received.Wait().message(), "channel 'to_device' of core 1 of launch 12"))
      << received.Wait();
}

TEST_F(MonitoredChannelsTest, CancellationEndsWaitsAMomentLater) {
  Fill();
  Ending received, sent;
  channels_.Receive({kNoLaunch, kOutfeedName, 3}, User(), received.received());
  channels_.Send(kMonitored, {}, kFeedCapacity, User(), sent.sent());
  cancellation_.StartCancel();
  for (Ending* ending : {&received, &sent}) {
    EXPECT_EQ(ending->Wait().code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(ending->Wait().message(), "Op the op was cancelled.");
    // The step's own error is reported, not its consequence.
    EXPECT_TRUE(tsl::StatusGroup::IsDerived(ending->Wait()));
  }
  EXPECT_EQ(monitor_.num_waits(), 0);
  // The channels are as if nothing had waited.
  Ending next;
  channels_.Receive({kNoLaunch, kOutfeedName, 3}, {"another"}, next.received());
  EXPECT_FALSE(next.has_come());
  table_.Send({kNoLaunch, kOutfeedName, 3}, {}, kFeedCapacity, [](const absl::Status&) {});
  EXPECT_TRUE(next.Wait().ok());
  EXPECT_EQ(table_.Drain(kMonitored), kFeedCapacity);
}

TEST_F(MonitoredChannelsTest, ACancelledStepBeginsNoWait) {
  cancellation_.StartCancel();
  Ending received, sent;
  channels_.Receive(kMonitored, User(), received.received());
  channels_.Send(kMonitored, {}, kFeedCapacity, User(), sent.sent());
  EXPECT_EQ(monitor_.num_waits(), 0);
  for (Ending* ending : {&received, &sent}) {
    EXPECT_EQ(ending->Wait().message(), "Op the op was cancelled.");
    EXPECT_TRUE(tsl::StatusGroup::IsDerived(ending->Wait()));
  }
  // Nothing was sent.
  EXPECT_EQ(table_.Drain(kMonitored), 0);
}

TEST_F(MonitoredChannelsTest, UnboundedChannelsTakeAtOnce) {
  for (int i = 0; i < 2 * kFeedCapacity; ++i) {
    Ending sent;
    channels_.Send({1, "to_host", 0}, {}, TensorChannels::kUnbounded, User(), sent.sent());
    ASSERT_TRUE(sent.has_come());
    EXPECT_TRUE(sent.Wait().ok());
  }
  EXPECT_EQ(monitor_.num_waits(), 0);
}

TEST_F(MonitoredChannelsTest, TheOwnersAbortEndsItsWaits) {
  Ending of_launch, of_another;
  channels_.Receive(kMonitored, {"the op", 5}, of_launch.received());
  channels_.Receive(kMonitored, {"the op", 6}, of_another.received());
  table_.Abort(5, absl::AbortedError("another core failed"));
  ASSERT_TRUE(of_launch.has_come());
  EXPECT_EQ(of_launch.Wait(), absl::AbortedError("another core failed"));
  EXPECT_FALSE(of_another.has_come());
  EXPECT_EQ(monitor_.num_waits(), 1);
  table_.Abort(6, absl::AbortedError(""));
  EXPECT_EQ(monitor_.num_waits(), 0);
}

}  // namespace
}  // namespace tf_tpu_ext
