#include "cc/transfer/host_functions.h"

#include <atomic>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "cc/base/tensor_testing.h"
#include "cc/transfer/host_function_testing.h"
#include "cc/transfer/process_testing.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/function.pb.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;

// Adds the number of times this kernel has run, which is state of the kernel itself.
REGISTER_OP("TpuExtTest>Number").Input("x: float").Output("y: float").SetIsStateful();

class NumberOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tensorflow::OpKernelContext* context) override {
    Tensor result = MakeScalar<float>(context->input(0).scalar<float>()() + ++runs_);
    context->set_output(0, result);
  }

 private:
  std::atomic<int> runs_{0};
};
REGISTER_KERNEL_BUILDER(Name("TpuExtTest>Number").Device(tensorflow::DEVICE_CPU), NumberOp);

// Waits until two ops of this type run at once.
absl::BlockingCounter* meeting = nullptr;

REGISTER_OP("TpuExtTest>Meet").Input("x: float").Output("y: float").SetIsStateful();

class MeetOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tensorflow::OpKernelContext* context) override {
    meeting->DecrementCount();
    met.WaitForNotification();
    context->set_output(0, context->input(0));
  }
  static absl::Notification met;
};
absl::Notification MeetOp::met;
REGISTER_KERNEL_BUILDER(Name("TpuExtTest>Meet").Device(tensorflow::DEVICE_CPU), MeetOp);

std::shared_ptr<HostFunctions> Make(const std::vector<HostFunctionSource>& sources,
                                    int num_slots = 1) {
  auto functions = HostFunctions::Create(sources, num_slots, &TestProcess::Get().host_threads,
                                         &TestProcess::Get().transfer_stats);
  EXPECT_TRUE(functions.ok()) << functions.status();
  return *std::move(functions);
}

// A function of two ops that do not depend on each other.
HostFunctionSource TwoAtOnce(const std::string& name, const std::string& op) {
  HostFunctionSource source = ChainOfOps(name, {op, op});
  tensorflow::FunctionDefLibrary library;
  EXPECT_TRUE(library.ParseFromString(source.library));
  tensorflow::FunctionDef& function = *library.mutable_function(0);
  function.mutable_node_def(1)->set_input(0, "x");
  // The first op has no consumer: it runs for its effect.
  (*function.mutable_control_ret())["first"] = "the_op0";
  function.mutable_signature()->add_control_output("first");
  source.library = library.SerializeAsString();
  return source;
}

// A function that calls another one in the same library.
HostFunctionSource CallOf(const HostFunctionSource& callee, const std::string& name) {
  tensorflow::FunctionDefLibrary library, inner;
  EXPECT_TRUE(inner.ParseFromString(callee.library));
  HostFunctionSource source = ChainOfOps(name, {"StatefulPartitionedCall"});
  EXPECT_TRUE(library.ParseFromString(source.library));
  tensorflow::FunctionDef& function = *library.mutable_function(0);
  auto& attributes = *function.mutable_node_def(0)->mutable_attr();
  attributes.clear();
  attributes["Tin"].mutable_list()->add_type(tensorflow::DT_FLOAT);
  attributes["Tout"].mutable_list()->add_type(tensorflow::DT_FLOAT);
  attributes["f"].mutable_func()->set_name(callee.name);
  (*function.mutable_ret())["result"] = "the_op0:output:0";
  library.MergeFrom(inner);
  source.library = library.SerializeAsString();
  return source;
}

float RunNow(const HostFunctions& functions, int number, int slot, float x) {
  std::vector<Tensor> outputs;
  const absl::Status status =
      functions.Run(number, slot, /*cancellation=*/nullptr, {MakeScalar(x)}, &outputs);
  EXPECT_TRUE(status.ok()) << status;
  return status.ok() ? outputs[0].scalar<float>()() : NAN;
}

TEST(HostFunctionsTest, KindsTellWhereAFunctionMayRun) {
  const auto functions =
      Make({ChainOfOps("pure", {"Square", "Abs"}), ChainOfOps("one", {"TpuExtTest>Number"}),
            ChainOfOps("two", {"TpuExtTest>Number", "TpuExtTest>Number"})});
  EXPECT_EQ(functions->kind(0), HostFunctionKind::kPure);
  EXPECT_EQ(functions->kind(1), HostFunctionKind::kBlocks);
  EXPECT_EQ(functions->kind(2), HostFunctionKind::kBlocksInParallel);
}

TEST(HostFunctionsTest, KindsCountWhatIsCalled) {
  const auto functions = Make(
      {CallOf(ChainOfOps("inner_pure", {"Square"}), "calls_pure"),
       CallOf(ChainOfOps("inner_two", {"TpuExtTest>Number", "TpuExtTest>Number"}), "calls_two")});
  // The call itself is stateful, but can't block.
  EXPECT_EQ(functions->kind(0), HostFunctionKind::kComputes);
  EXPECT_EQ(functions->kind(1), HostFunctionKind::kBlocksInParallel);
}

TEST(HostFunctionsTest, ErrorsCallAFunctionByItsPlace) {
  HostFunctionSource unknown = ChainOfOps("unknown_place", {"Square"});
  unknown.source.clear();
  const auto functions = Make({ChainOfOps("square_place", {"Square"}), unknown});
  EXPECT_EQ(functions->description(0), "outside_compilation at train.py:7");
  EXPECT_EQ(functions->description(1), "outside_compilation");
}

TEST(HostFunctionsTest, SlotsHaveStateOfTheirOwn) {
  const auto functions = Make({ChainOfOps("number", {"TpuExtTest>Number"})}, /*num_slots=*/2);
  EXPECT_EQ(RunNow(*functions, 0, 0, 10), 11);
  EXPECT_EQ(RunNow(*functions, 0, 0, 10), 12);
  EXPECT_EQ(RunNow(*functions, 0, 1, 10), 11);
}

TEST(HostFunctionsTest, AnErrorOfAPureFunctionNamesTheOp) {
  const auto functions = Make({ChainOfOps("check_twice", {"Square", "CheckNumerics"})});
  std::vector<Tensor> outputs;
  const absl::Status status =
      functions->Run(0, 0, nullptr, {MakeScalar<float>(INFINITY)}, &outputs);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("the_op1"), std::string::npos) << status;
}

TEST(HostFunctionsTest, OpsThatBlockRunAtOnce) {
  // Each op waits until both have begun.
  meeting = new absl::BlockingCounter(2);
  const auto functions = Make({TwoAtOnce("meet", "TpuExtTest>Meet")});
  ASSERT_EQ(functions->kind(0), HostFunctionKind::kBlocksInParallel);
  absl::Notification done;
  absl::StatusOr<std::vector<Tensor>> result;
  functions->Start(0, 0, std::make_shared<tensorflow::CancellationManager>(),
                   {MakeScalar<float>(4)}, [&](absl::StatusOr<std::vector<Tensor>> outputs) {
                     result = std::move(outputs);
                     done.Notify();
                   });
  meeting->Wait();
  EXPECT_FALSE(done.HasBeenNotified());
  MeetOp::met.Notify();
  done.WaitForNotification();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ((*result)[0].scalar<float>()(), 4);
}

TEST(HostFunctionsTest, StartHandsOverErrors) {
  const auto functions = Make({ChainOfOps("check_started", {"CheckNumerics"})});
  absl::Notification done;
  absl::Status status;
  functions->Start(0, 0, std::make_shared<tensorflow::CancellationManager>(),
                   {MakeScalar<float>(NAN)},
                   [&](const absl::StatusOr<std::vector<Tensor>>& outputs) {
                     status = outputs.status();
                     done.Notify();
                   });
  done.WaitForNotification();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

TEST(HostFunctionsTest, RecordsWhatAnotherHostHasPrepared) {
  HostFunctionSource source = ChainOfOps("of_another_host", {"Square"});
  source.source = "model.py:3";
  source.cluster = "5";
  Make({source});
  Make({source});
  int found = 0;
  for (const ClusterRecord& record : TestProcess::Get().transfer_stats.RecordedClusters()) {
    if (record.counted_as != source.name) continue;
    ++found;
    EXPECT_EQ(record.cluster, "5");
    EXPECT_EQ(record.source, "model.py:3");
    EXPECT_EQ(record.not_folded_because, "");
  }
  EXPECT_EQ(found, 1);
}

TEST(HostFunctionsTest, RefusesWhatIsNoFunction) {
  EXPECT_EQ(HostFunctions::Create({{"f", "no library", ""}}, 1, &TestProcess::Get().host_threads,
                                  &TestProcess::Get().transfer_stats)
                .status()
                .code(),
            absl::StatusCode::kInternal);
  HostFunctionSource other = ChainOfOps("known", {"Square"});
  other.name = "not in the library";
  EXPECT_FALSE(HostFunctions::Create({other}, 1, &TestProcess::Get().host_threads,
                                     &TestProcess::Get().transfer_stats)
                   .ok());
}

}  // namespace
}  // namespace tf_tpu_ext
