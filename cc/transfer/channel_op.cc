#include "cc/transfer/channel_op.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cc/base/after_cancellation.h"
#include "cc/base/machine.h"
#include "cc/base/process.h"
#include "cc/device/virtual_device.h"
#include "cc/transfer/channel_wait.h"

namespace tf_tpu_ext {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

void ChannelOp::Receive(OpKernelContext* context, const ChannelKey& key, const DoneCallback& done) {
  auto wait =
      std::make_shared<ChannelWait>(Process::Get(), context->cancellation_manager(), key, name());
  if (!wait->Watch()) {
    EndCancelled(context, done);
    return;
  }
  const auto id = Process::Get().channels->Receive(
      key, [this, context, wait, done](absl::StatusOr<TensorMessage> message) {
        wait->Done();
        if (message.ok() && message->taken != nullptr) {
          message->taken->store(absl::GetCurrentTimeNanos());
        }
        context->SetStatus(message.ok() ? SetOutputs(context, message->tensors) : message.status());
        done();
      });
  wait->Began(id);
}

void ChannelOp::Send(OpKernelContext* context, const ChannelKey& key, int capacity,
                     std::vector<Tensor> message, const DoneCallback& done) {
  if (capacity == TensorChannels::kUnbounded) {
    Process::Get().channels->Send(key, std::move(message), capacity,
                                  [context, done](const absl::Status& status) {
                                    context->SetStatus(status);
                                    done();
                                  });
    return;
  }
  auto wait =
      std::make_shared<ChannelWait>(Process::Get(), context->cancellation_manager(), key, name());
  if (!wait->Watch()) {
    EndCancelled(context, done);
    return;
  }
  const auto id = Process::Get().channels->Send(
      key, std::move(message), capacity,
      [context, wait, done](const absl::Status& status) {
        wait->Done();
        context->SetStatus(status);
        done();
      },
      OwnerOfStep(context->step_id()));
  wait->Began(id);
}

void ChannelOp::EndCancelled(OpKernelContext* context, const DoneCallback& done) {
  AfterCancellation([this, context, done] {
    context->SetStatus(Cancelled(absl::StrCat("Op ", name(), " was cancelled.")));
    done();
  });
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
    const Tensor& ordinal = context->input(context->num_inputs() - 1);
    if (ordinal.NumElements() != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("The device_ordinal of op ", this->name(), " has the shape ",
                       ordinal.shape().DebugString(), "; it must be a scalar."));
    }
    core = ordinal.flat<int32_t>()(0);
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
