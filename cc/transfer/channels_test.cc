#include "cc/transfer/channels.h"

#include <optional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

const ChannelKey kInfeed{kNoLaunch, kInfeedName, 0};

void Ignore(const absl::Status&) {}

ChannelKey ChannelOf(int64_t launch_id) { return {launch_id, "call", 0}; }

// What a receiver has got so far; nullopt while it waits.
std::shared_ptr<std::optional<absl::Status>> Receive(TensorChannels& channels,
                                                     const ChannelKey& key) {
  auto ended = std::make_shared<std::optional<absl::Status>>();
  channels.Receive(
      key, [ended](const absl::StatusOr<TensorMessage>& message) { *ended = message.status(); });
  return ended;
}

void FinishOthers(TensorChannels& channels, size_t number) {
  static int64_t next = 1'000'000;
  for (size_t i = 0; i < number; ++i) channels.Finish(next++);
}

TEST(TensorChannelsTest, TheHostReadsWhatAFinishedLaunchSentLast) {
  TensorChannels channels;
  channels.Send(ChannelOf(1), {}, TensorChannels::kUnbounded, Ignore);
  channels.Finish(1);
  FinishOthers(channels, TensorChannels::kRememberedLaunches - 1);
  const auto received = Receive(channels, ChannelOf(1));
  ASSERT_TRUE(received->has_value());
  EXPECT_TRUE((*received)->ok());
}

TEST(TensorChannelsTest, ALaunchThatEndedLongAgoIsForgotten) {
  TensorChannels channels;
  const auto waiting = Receive(channels, ChannelOf(1));
  channels.Finish(1);
  FinishOthers(channels, TensorChannels::kRememberedLaunches - 1);
  EXPECT_FALSE(waiting->has_value());
  FinishOthers(channels, 1);
  ASSERT_TRUE(waiting->has_value());
  EXPECT_EQ(**waiting,
            absl::CancelledError("The TPU program ended long ago without this transfer."));
}

// Two host loops whose iterations alternate end thousands of times between them.
TEST(TensorChannelsTest, ALaunchThatEndsAgainAndAgainIsNotForgotten) {
  TensorChannels channels;
  const auto first = Receive(channels, ChannelOf(1));
  const auto second = Receive(channels, ChannelOf(2));
  for (size_t round = 0; round < 2 * TensorChannels::kRememberedLaunches; ++round) {
    channels.Finish(1);
    channels.Finish(2);
  }
  EXPECT_FALSE(first->has_value());
  EXPECT_FALSE(second->has_value());
  FinishOthers(channels, TensorChannels::kRememberedLaunches - 1);
  // The first ended before the second.
  EXPECT_TRUE(first->has_value());
  EXPECT_FALSE(second->has_value());
}

TEST(TensorChannelsTest, DropsWhatAFailedStepSentAndRefusesTheRest) {
  TensorChannels channels;
  const absl::Status failure = absl::AbortedError("the step failed");
  channels.Send(kInfeed, {}, kFeedCapacity, Ignore, OwnerOfStep(7));
  channels.DropSentBy(7, failure);
  const auto received = Receive(channels, kInfeed);
  EXPECT_FALSE(received->has_value());

  absl::Status late;
  channels.Send(
      kInfeed, {}, kFeedCapacity, [&](const absl::Status& status) { late = status; },
      OwnerOfStep(7));
  EXPECT_EQ(late, failure);
  EXPECT_FALSE(received->has_value());

  channels.Send(kInfeed, {}, kFeedCapacity, Ignore, OwnerOfStep(8));
  ASSERT_TRUE(received->has_value());
  EXPECT_TRUE((*received)->ok());
}

TEST(TensorChannelsTest, OwnersOfStepsAreNoLaunches) {
  for (int64_t step : {int64_t{0}, int64_t{1}, int64_t{-1}, int64_t{1} << 62}) {
    EXPECT_LT(OwnerOfStep(step), kNoLaunch) << step;
  }
  EXPECT_NE(OwnerOfStep(1), OwnerOfStep(2));
}

}  // namespace
}  // namespace tf_tpu_ext
