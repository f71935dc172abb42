#include "cc/base/custom_call.h"

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "cc/abi/xla/ffi.h"
#include "cc/base/compute_pool.h"
#include "cc/base/custom_call_tester.h"
#include "cc/base/process.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;

std::atomic<int> made{0}, deleted{0};

Tensor Scalar(float value) {
  Tensor tensor(tensorflow::DT_FLOAT, {});
  tensor.scalar<float>()() = value;
  return tensor;
}

// Adds a number from its configuration to its operand.
class AddCall : public CustomCall {
 public:
  explicit AddCall(int64_t number) : number_(number) { ++made; }
  ~AddCall() override { ++deleted; }

  absl::Status Execute(XLA_FFI_CallFrame* frame) const override {
    const Tensor operand = Borrow(*static_cast<const XLA_FFI_Buffer*>(frame->args.args[0]));
    Tensor result = Borrow(*static_cast<const XLA_FFI_Buffer*>(frame->rets.rets[0]));
    if (operand.scalar<float>()() < 0) return absl::OutOfRangeError("negative");
    result.scalar<float>()() = operand.scalar<float>()() + number_;
    return absl::OkStatus();
  }

 private:
  const int64_t number_;
};

absl::StatusOr<std::unique_ptr<CustomCall>> MakeAdd(const CallAttributes& attributes) {
  absl::StatusOr<int64_t> number = attributes.GetInteger("number");
  if (!number.ok()) return number.status();
  return std::make_unique<AddCall>(*number);
}

// Completes when the test says so, with the core's number as its result.
std::shared_ptr<Completion> pending;

class LaterCall : public CustomCall {
 public:
  absl::Status Execute(XLA_FFI_CallFrame* frame) const override {
    const CoreContext* core = CoreOf(*frame);
    if (core == nullptr) return absl::FailedPreconditionError("no core");
    Tensor result = Borrow(*static_cast<const XLA_FFI_Buffer*>(frame->rets.rets[0]));
    result.scalar<float>()() = core->core.value();
    absl::StatusOr<std::shared_ptr<Completion>> completion = Completion::Create(frame);
    if (!completion.ok()) return completion.status();
    pending = *std::move(completion);
    return absl::OkStatus();
  }
};

absl::StatusOr<std::unique_ptr<CustomCall>> MakeLater(const CallAttributes& /*attributes*/) {
  return std::make_unique<LaterCall>();
}

const bool kAddRegistered = RegisterCustomCall<MakeAdd>("tf_tpu_ext_test_add");
const bool kLaterRegistered = RegisterCustomCall<MakeLater>("tf_tpu_ext_test_later");

TEST(CustomCallTest, TheConfigurationIsReadOnce) {
  ASSERT_TRUE(kAddRegistered);
  made = deleted = 0;
  {
    auto call = CustomCallTester::Create("tf_tpu_ext_test_add", "{number = 3 : i64}", {Scalar(0)},
                                         {Scalar(0)});
    ASSERT_TRUE(call.ok()) << call.status();
    EXPECT_EQ(made, 1);
    for (int i = 0; i < 1000; ++i) {
      (*call)->operand(0).scalar<float>()() = static_cast<float>(i);
      ASSERT_TRUE((*call)->Run(nullptr).ok());
      ASSERT_EQ((*call)->result(0).scalar<float>()(), i + 3);
    }
    EXPECT_EQ(made, 1);
    EXPECT_EQ(deleted, 0);
  }
  // XLA deletes it with the executable.
  EXPECT_EQ(deleted, 1);
}

TEST(CustomCallTest, EachCallHasItsOwnConfiguration) {
  auto first = CustomCallTester::Create("tf_tpu_ext_test_add", "{number = 1 : i64}", {Scalar(1)},
                                        {Scalar(0)});
  auto second = CustomCallTester::Create("tf_tpu_ext_test_add", "{number = 2 : i64}", {Scalar(1)},
                                         {Scalar(0)});
  ASSERT_TRUE(first.ok() && second.ok());
  ASSERT_TRUE((*first)->Run(nullptr).ok());
  ASSERT_TRUE((*second)->Run(nullptr).ok());
  EXPECT_EQ((*first)->result(0).scalar<float>()(), 2);
  EXPECT_EQ((*second)->result(0).scalar<float>()(), 3);
}

TEST(CustomCallTest, AWrongConfigurationFailsTheCompilation) {
  auto call = CustomCallTester::Create("tf_tpu_ext_test_add", "{number = \"three\"}", {Scalar(0)},
                                       {Scalar(0)});
  EXPECT_EQ(call.status().code(), absl::StatusCode::kInternal);
  EXPECT_NE(call.status().message().find("no integer 'number'"), std::string::npos)
      << call.status();
}

TEST(CustomCallTest, ErrorsKeepCodeAndText) {
  auto call = CustomCallTester::Create("tf_tpu_ext_test_add", "{number = 3 : i64}", {Scalar(-1)},
                                       {Scalar(0)});
  ASSERT_TRUE(call.ok()) << call.status();
  const absl::Status status = (*call)->Run(nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_NE(status.message().find("negative"), std::string::npos) << status;
}

TEST(CustomCallTest, CompletesLater) {
  ASSERT_TRUE(kLaterRegistered);
  // Where collectives wait, a program continues on a thread of the pool.
  ComputePool pool;
  Process process;
  process.compute_pool = &pool;
  Process::Install(&process);
  auto call = CustomCallTester::Create("tf_tpu_ext_test_later", "{}", {}, {Scalar(0)});
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ((*call)->Run(nullptr).code(), absl::StatusCode::kFailedPrecondition);

  CoreContext core;
  core.core = Core(5);
  auto event = (*call)->Start(&core);
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_FALSE(event->IsAvailable());
  pending->Complete(absl::OkStatus());
  tsl::BlockUntilReady(*event);
  EXPECT_TRUE(event->IsConcrete());
  EXPECT_EQ((*call)->result(0).scalar<float>()(), 5);

  event = (*call)->Start(&core);
  ASSERT_TRUE(event.ok()) << event.status();
  pending->Complete(absl::AbortedError("another core failed"));
  tsl::BlockUntilReady(*event);
  ASSERT_TRUE(event->IsError());
  EXPECT_EQ(event->GetError().code(), absl::StatusCode::kAborted);
  pending.reset();
  Process::Install(nullptr);
}

TEST(CustomCallTest, ATargetKeepsItsFirstCall) {
  EXPECT_EQ(RegisterCustomCall<MakeAdd>("tf_tpu_ext_test_later"), !kSecondHandlerIsAnError);
  auto call = CustomCallTester::Create("tf_tpu_ext_test_later", "{}", {}, {Scalar(0)});
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ((*call)->Run(nullptr).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(CustomCallTest, TypesOfXlaAndTensorFlow) {
  EXPECT_EQ(ToTensorFlowType(XLA_FFI_DataType_F32), tensorflow::DT_FLOAT);
  EXPECT_EQ(ToTensorFlowType(XLA_FFI_DataType_BF16), tensorflow::DT_BFLOAT16);
  EXPECT_EQ(ToTensorFlowType(XLA_FFI_DataType_PRED), tensorflow::DT_BOOL);
  EXPECT_EQ(ToTensorFlowType(XLA_FFI_DataType_C64), tensorflow::DT_COMPLEX64);
  EXPECT_EQ(ToTensorFlowType(XLA_FFI_DataType_TOKEN), tensorflow::DT_INVALID);
}

TEST(CustomCallTest, BorrowsMemory) {
  Tensor owned(tensorflow::DT_INT32, {2, 3});
  int64_t dims[] = {2, 3};
  XLA_FFI_Buffer buffer = {};
  buffer.dtype = XLA_FFI_DataType_S32;
  buffer.data = owned.data();
  buffer.rank = 2;
  buffer.dims = dims;
  EXPECT_EQ(ShapeOf(buffer), tensorflow::TensorShape({2, 3}));
  ASSERT_TRUE(IsAlignedForKernels(buffer.data));
  EXPECT_FALSE(IsAlignedForKernels(static_cast<char*>(buffer.data) + 4));
  const Tensor borrowed = Borrow(buffer);
  EXPECT_EQ(borrowed.data(), owned.data());
  EXPECT_EQ(borrowed.dtype(), tensorflow::DT_INT32);
  // No kernel forwards its memory to an output.
  EXPECT_FALSE(borrowed.RefCountIsOne());
}

}  // namespace
}  // namespace tf_tpu_ext
