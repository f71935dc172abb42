#include "cc/runtime/join_launch.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "cc/runtime/collective_table.h"
#include "cc/runtime/core_order.h"
#include "cc/runtime/launch_fakes.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/platform/env.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

constexpr LaunchId kJoined(7);

CompiledProgram TwoReplicas() {
  CompiledProgram compiled;
  compiled.name = "train";
  compiled.num_replicas = 2;
  compiled.cores = {Core(0), Core(1)};
  return compiled;
}

class JoinLaunchTest : public ::testing::Test {
 protected:
  // An op that has joined a launch, or tried to.
  struct Op {
    OpKernelContext::Params params;
    std::unique_ptr<OpKernelContext> context;
    std::optional<std::vector<Tensor>> written;
    absl::Notification done;
  };

  JoinLaunchTest() : table_(Services()) {}

  LaunchServices Services() {
    LaunchServices services;
    services.collectives = &collectives_;
    services.wait_monitor = &monitor_;
    services.core_order = &order_;
    services.compute_pool = &pool_;
    services.transfers = &transfers_;
    return services;
  }

  std::unique_ptr<Op> Join(int core, const absl::Status& write_result = absl::OkStatus()) {
    auto op = std::make_unique<Op>();
    op->params.device = &device_;
    op->params.cancellation_manager = &cancellation_;
    op->context = std::make_unique<OpKernelContext>(&op->params, /*num_outputs=*/0);
    joined_ = JoinLaunch(
        op->context.get(), &table_, Core(core), kJoined, {program_, nullptr}, {},
        [op = op.get(), write_result](std::vector<Tensor> outputs) {
          op->written = std::move(outputs);
          return write_result;
        },
        [op = op.get()] { op->done.Notify(); });
    return op;
  }

  tensorflow::DeviceBase device_{tensorflow::Env::Default()};
  tensorflow::CancellationManager cancellation_;
  FakePool pool_;
  FakeMonitor monitor_;
  FakeTransfers transfers_;
  CollectiveTable collectives_;
  CoreOrder order_;
  LaunchTable table_;
  std::shared_ptr<FakeProgram> program_ = std::make_shared<FakeProgram>(TwoReplicas());
  absl::Status joined_;
};

TEST_F(JoinLaunchTest, WritesTheResults) {
  const auto first = Join(0);
  const auto second = Join(1);
  EXPECT_TRUE(joined_.ok());
  program_->OfSlot(Slot(0)).End({FloatTensor({1})});
  EXPECT_FALSE(first->done.HasBeenNotified());
  program_->OfSlot(Slot(1)).End({FloatTensor({2})});
  ASSERT_TRUE(first->done.HasBeenNotified() && second->done.HasBeenNotified());
  EXPECT_EQ(FloatsOf((*first->written)[0]), std::vector<float>{1});
  EXPECT_EQ(FloatsOf((*second->written)[0]), std::vector<float>{2});
  EXPECT_TRUE(first->context->status().ok());
}

TEST_F(JoinLaunchTest, AnErrorOfWritingIsTheOps) {
  const auto first = Join(0, absl::InternalError("too few outputs"));
  const auto second = Join(1);
  program_->OfSlot(Slot(0)).End({});
  program_->OfSlot(Slot(1)).End({});
  EXPECT_EQ(first->context->status(), absl::InternalError("too few outputs"));
  EXPECT_TRUE(second->context->status().ok());
}

TEST_F(JoinLaunchTest, AFailedStepWritesNothing) {
  const auto first = Join(0);
  const auto second = Join(1);
  program_->OfSlot(Slot(0)).Fail(absl::InternalError("broken"));
  program_->OfSlot(Slot(1)).End({});
  ASSERT_TRUE(second->done.HasBeenNotified());
  EXPECT_FALSE(first->written.has_value() || second->written.has_value());
  EXPECT_EQ(second->context->status().code(), absl::StatusCode::kInternal);
}

TEST_F(JoinLaunchTest, ACancellationReachesTheLaunch) {
  const auto op = Join(0);
  cancellation_.StartCancel();
  op->done.WaitForNotification();
  EXPECT_EQ(op->context->status().code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(op->written.has_value());
}

TEST_F(JoinLaunchTest, AStepThatIsCancelledAlreadyJoinsNothing) {
  cancellation_.StartCancel();
  const auto op = Join(0);
  EXPECT_TRUE(joined_.ok());
  op->done.WaitForNotification();
  EXPECT_EQ(op->context->status().message(),
            "The step was cancelled before the TPU program started.");
  EXPECT_EQ(monitor_.num_waits(), 0);
}

TEST_F(JoinLaunchTest, ACoreThatIsRefusedIsNotDone) {
  const auto op = Join(5);
  EXPECT_EQ(joined_.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(op->done.HasBeenNotified());
  // There is nothing left for its cancellation to end.
  cancellation_.StartCancel();
  EXPECT_FALSE(op->done.HasBeenNotified());
}

}  // namespace
}  // namespace tf_tpu_ext
