#include "cc/transfer/channel_op.h"

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cc/base/fault_points.h"
#include "cc/base/machine.h"
#include "cc/base/process.h"
#include "cc/base/scalar_input.h"
#include "cc/device/virtual_device.h"

namespace tf_tpu_ext {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

namespace {

// The step number that all eager ops have, although each is a step of its own.
constexpr int64_t kEagerStep = 0;

}  // namespace

ChannelOp::ChannelOp(OpKernelConstruction* construction)
    : AsyncOpKernel(construction),
      channels_(Process::Get().channels, Process::Get().wait_monitor) {}

void ChannelOp::Receive(OpKernelContext* context, const ChannelKey& key, const DoneCallback& done) {
  if (absl::Status fault = FaultAt(FaultPoint::kTransfer); !fault.ok()) {
    return Fail(context, fault, done);
  }
  channels_.Receive(key, {name(), kNoLaunch, context->cancellation_manager()},
                    [this, context, done](absl::StatusOr<TensorMessage> message) {
                      if (message.ok() && message->taken != nullptr) {
                        message->taken->store(absl::GetCurrentTimeNanos());
                      }
                      if (!message.ok()) {
                        context->SetStatus(message.status());
                        return done();
                      }
                      if (absl::Status set = SetOutputs(context, message->tensors); !set.ok()) {
                        return Fail(context, set, done);
                      }
                      done();
                    });
}

void ChannelOp::Send(OpKernelContext* context, const ChannelKey& key, int capacity,
                     std::vector<Tensor> message, const DoneCallback& done) {
  if (absl::Status fault = FaultAt(FaultPoint::kTransfer); !fault.ok()) {
    return Fail(context, fault, done);
  }
  const int64_t owner = key.launch_id == kNoLaunch ? OwnerOfStep(context->step_id()) : kNoLaunch;
  channels_.Send(key, std::move(message), capacity,
                 {name(), owner, context->cancellation_manager()},
                 [context, done](const absl::Status& status) {
                   context->SetStatus(status);
                   done();
                 });
}

void ChannelOp::Fail(OpKernelContext* context, const absl::Status& status,
                     const DoneCallback& done) const {
  const int64_t step = context->step_id();
  if (step != kEagerStep) Process::Get().channels->DropSentBy(step, status);
  context->SetStatus(status);
  done();
}

absl::Status ChannelOp::SetOutputs(OpKernelContext* context,
                                   const std::vector<Tensor>& message) const {
  if (static_cast<int>(message.size()) != context->num_outputs()) {
    return absl::InvalidArgumentError(absl::StrCat("Op ", name(), " gets ", message.size(),
                                                   " tensors; it has ", context->num_outputs(),
                                                   " outputs."));
  }
  for (int i = 0; i < context->num_outputs(); ++i) {
    if (message[i].dtype() != context->expected_output_dtype(i)) {
      return absl::InvalidArgumentError(
          absl::StrCat("Output ", i, " of op ", name(), " gets ",
                       tensorflow::DataTypeString(message[i].dtype()), "; it is declared as ",
                       tensorflow::DataTypeString(context->expected_output_dtype(i)), "."));
    }
    context->set_output(i, message[i]);
  }
  return absl::OkStatus();
}

FeedOp::FeedOp(OpKernelConstruction* construction) : ChannelOp(construction) {
  ordinal_is_input_ = !construction->GetAttr("device_ordinal", &ordinal_).ok();
}

absl::Status FeedOp::KeyOf(OpKernelContext* context, const char* name, ChannelKey* key) const {
  int64_t core = ordinal_;
  if (ordinal_is_input_) {
    TF_ASSIGN_OR_RETURN(core,
                        ScalarInput<int32_t>(*context, context->input(context->num_inputs() - 1),
                                             "device_ordinal"));
  }
  if (core < 0) {
    if (context->device()->device_type() != kTpuDeviceType) {
      return absl::InvalidArgumentError(absl::StrCat(
          "Op ", this->name(), " is on ", context->device()->name(), " and has device_ordinal=",
          core, ". Place it on a TPU device, or give the core's number."));
    }
    core = context->device()->parsed_name().id;
  }
  if (const int cores = GetMachineOptions().cores; core >= cores) {
    return absl::InvalidArgumentError(absl::StrCat("Op ", this->name(), " names core ", core,
                                                   "; this virtual TPU has cores 0 to ", cores - 1,
                                                   "."));
  }
  *key = {kNoLaunch, name, static_cast<int>(core)};
  return absl::OkStatus();
}

}  // namespace tf_tpu_ext
