#include "cc/base/after_cancellation.h"

#include <thread>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "tensorflow/core/platform/status.h"

namespace tf_tpu_ext {
namespace {

TEST(AfterCancellationTest, DoesNotEndTheOpOnTheCancellingThread) {
  absl::Notification ended;
  std::thread::id thread;
  AfterCancellation([&] {
    thread = std::this_thread::get_id();
    ended.Notify();
  });
  ended.WaitForNotification();
  EXPECT_NE(thread, std::this_thread::get_id());
}

// Of all errors of a step, TensorFlow reports the one that caused the cancellations.
TEST(CancelledTest, GivesWayToItsCause) {
  const absl::Status cancelled = Cancelled("The step was cancelled.");
  EXPECT_EQ(cancelled.code(), absl::StatusCode::kCancelled);
  tsl::StatusGroup group;
  group.Update(cancelled);
  group.Update(absl::ResourceExhaustedError("no memory"));
  EXPECT_EQ(group.as_summary_status().code(), absl::StatusCode::kResourceExhausted);
  tsl::StatusGroup alone;
  alone.Update(cancelled);
  EXPECT_EQ(alone.as_summary_status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace tf_tpu_ext
