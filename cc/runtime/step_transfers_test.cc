#include "cc/runtime/step_transfers.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cc/base/compute_pool.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

constexpr LaunchId kTransferLaunch(5);
constexpr int64_t kTransferStep = 3;

class StepTransfersTest : public ::testing::Test {
 protected:
  void Send(const ChannelKey& key, int64_t owner = kNoLaunch) {
    channels_.Send(key, {}, kFeedCapacity, [](const absl::Status&) {}, owner);
  }

  // Empties a queue of a core. Returns how many elements it had.
  int Drain(const std::string& name, int core) { return channels_.Drain({kNoLaunch, name, core}); }

  Machine machine_;
  ComputePool pool_;
  TensorChannels channels_;
  EmbeddingSlot embedding_{&pool_};
  StepTransfers transfers_{&machine_, &channels_, &embedding_};
};

TEST_F(StepTransfersTest, AbortEndsTheWaitsOfTheLaunchUntilItIsForgotten) {
  std::optional<absl::Status> received;
  channels_.Receive(
      {kTransferLaunch.value(), "call", 0},
      [&](const absl::StatusOr<TensorMessage>& message) { received = message.status(); });
  transfers_.Abort(LaunchId(6), absl::AbortedError("another"));
  EXPECT_FALSE(received.has_value());
  transfers_.Abort(kTransferLaunch, absl::AbortedError("failed"));
  EXPECT_EQ(received, absl::AbortedError("failed"));
  transfers_.Finish(kTransferLaunch);
  received.reset();
  // The host may still ask for the launch's outcome.
  channels_.Receive(
      {kTransferLaunch.value(), "call", 0},
      [&](const absl::StatusOr<TensorMessage>& message) { received = message.status(); });
  EXPECT_EQ(received, absl::AbortedError("failed"));
}

TEST_F(StepTransfersTest, DropsWhatTheProgramWouldHaveTaken) {
  for (int core = 0; core < 3; ++core) {
    Send({kNoLaunch, kInfeedName, core});
    Send({kNoLaunch, kOutfeedName, core});
    Send({kNoLaunch, kEmbeddingName, core});
  }
  TakenQueues takes;
  takes.infeed = true;
  transfers_.DropQueued(takes, {Core(0), Core(2)}, kTransferStep, absl::AbortedError("failed"));
  EXPECT_EQ(Drain(kInfeedName, 0), 0);
  EXPECT_EQ(Drain(kInfeedName, 1), 1);
  EXPECT_EQ(Drain(kInfeedName, 2), 0);
  EXPECT_EQ(Drain(kOutfeedName, 0), 1);
  // An embedding step involves all cores.
  takes.infeed = false;
  takes.embedding = true;
  transfers_.DropQueued(takes, {Core(0)}, kTransferStep, absl::AbortedError("failed"));
  for (int core = 0; core < 3; ++core) EXPECT_EQ(Drain(kEmbeddingName, core), 0);
}

TEST_F(StepTransfersTest, RefusesWhatTheFailedStepStillSends) {
  transfers_.DropQueued(TakenQueues(), {Core(0)}, kTransferStep, absl::AbortedError("failed"));
  std::optional<absl::Status> sent;
  channels_.Send(
      {kNoLaunch, kInfeedName, 0}, {}, kFeedCapacity,
      [&](absl::Status status) { sent = std::move(status); }, OwnerOfStep(kTransferStep));
  EXPECT_EQ(sent, absl::AbortedError("failed"));
  EXPECT_EQ(Drain(kInfeedName, 0), 0);
}

TEST_F(StepTransfersTest, ANewSystemHasEmptyQueues) {
  const int last = machine_.options().cores - 1;
  for (const char* name : {kInfeedName, kOutfeedName, kEmbeddingName}) {
    Send({kNoLaunch, name, last});
  }
  transfers_.DropAllQueued();
  for (const char* name : {kInfeedName, kOutfeedName, kEmbeddingName}) {
    EXPECT_EQ(Drain(name, last), 0) << name;
  }
}

}  // namespace
}  // namespace tf_tpu_ext
