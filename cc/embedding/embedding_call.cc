// The handlers of the embedding's custom calls.
#include "cc/embedding/embedding_call.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cc/base/core_context.h"
#include "cc/base/custom_call.h"
#include "cc/base/wait_monitor.h"
#include "cc/embedding/batch_message.h"
#include "cc/embedding/current_embedding.h"
#include "cc/transfer/channel_wait.h"
#include "cc/transfer/channels.h"
#include "tensorflow/core/framework/tensor.h"
#include "xla/ffi/api/c_api.h"
#include "xla/ffi/api/c_api_internal.h"
#include "xla/ffi/execution_context.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;

absl::StatusOr<CoreContext*> CoreOf(const XLA_FFI_CallFrame* frame) {
  auto* context = static_cast<const xla::ffi::ExecutionContext*>(
      frame->api->internal_api->XLA_FFI_INTERNAL_ExecutionContext_Get(frame->ctx));
  absl::StatusOr<CoreContext*> core =
      context == nullptr ? absl::NotFoundError("") : context->Lookup<CoreContext>();
  if (core.ok()) return core;
  return absl::FailedPreconditionError(
      absl::StrCat("Op ", StringAttribute(frame->attrs, kEmbeddingOp),
                   " uses a TPU core's embedding and can run only in a TPU program."));
}

// The buffers as one float array for each output of the layout.
absl::Status MatchBuffers(const EmbeddingLayout& layout, const std::string& op,
                          const std::vector<const XLA_FFI_Buffer*>& buffers,
                          std::vector<float*>* arrays) {
  if (buffers.size() != layout.outputs.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("Op ", op, " was compiled for ", buffers.size(),
                     " tensors of embeddings; the TPU is configured for ", layout.outputs.size(),
                     ". Trace the program anew for a new configuration."));
  }
  for (size_t i = 0; i < buffers.size(); ++i) {
    const EmbeddingLayout::Output& output = layout.outputs[i];
    const int64_t expected = output.rows * layout.tables[output.table].dim;
    if (ToTensorFlowType(buffers[i]->dtype) != tensorflow::DT_FLOAT ||
        ShapeOf(*buffers[i]).num_elements() != expected) {
      return absl::InvalidArgumentError(
          absl::StrCat("Op ", op, " was compiled for ", ShapeOf(*buffers[i]).num_elements(),
                       " values of ", output.name, "; the TPU is configured for ", expected,
                       ". Trace the program anew for a new configuration."));
    }
    arrays->push_back(static_cast<float*>(buffers[i]->data));
  }
  return absl::OkStatus();
}

// A lookup that waits for the update of a step: ends with it, or with the time limit.
class UpdateWait : public std::enable_shared_from_this<UpdateWait> {
 public:
  UpdateWait(std::shared_ptr<EmbeddingEngine> engine, int core, std::string op)
      : engine_(std::move(engine)), core_(core), op_(std::move(op)) {}

  void Begin(int64_t launch, std::shared_ptr<const EmbeddingBatch> batch,
             std::vector<float*> outputs, std::shared_ptr<Completion> completion) {
    const auto id = engine_->Receive(
        core_, launch, std::move(batch), std::move(outputs),
        [self = shared_from_this(), completion = std::move(completion)](absl::Status status) {
          self->Done();
          completion->Complete(status);
        });
    absl::MutexLock lock(&mutex_);
    if (done_) return;
    monitored_ = WaitMonitor::Get().Begin([self = shared_from_this(), id](absl::Duration waited) {
      self->engine_->Cancel(
          id, absl::DeadlineExceededError(absl::StrCat(
                  "Op ", self->op_, " waited ", absl::FormatDuration(waited), ": ",
                  self->engine_->DescribeWait(self->core_),
                  ". Find out which core enqueued or sent less, or raise the limit with "
                  "tf_tpu_ext.configure(wait_limit_seconds=...).")));
    });
  }

 private:
  void Done() {
    WaitMonitor::WaitId monitored;
    {
      absl::MutexLock lock(&mutex_);
      done_ = true;
      monitored = monitored_;
    }
    if (monitored != 0) WaitMonitor::Get().End(monitored);
  }

  const std::shared_ptr<EmbeddingEngine> engine_;
  const int core_;
  const std::string op_;
  absl::Mutex mutex_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  WaitMonitor::WaitId monitored_ ABSL_GUARDED_BY(mutex_) = 0;
};

XLA_FFI_Error* ReceiveActivations(XLA_FFI_CallFrame* frame) {
  const XLA_FFI_Api* api = frame->api;
  const std::string op = StringAttribute(frame->attrs, kEmbeddingOp);
  absl::StatusOr<CoreContext*> core = CoreOf(frame);
  if (!core.ok()) return MakeError(api, core.status());
  auto engine = RequireEmbedding(op);
  if (!engine.ok()) return MakeError(api, engine.status());
  std::vector<const XLA_FFI_Buffer*> buffers;
  for (int64_t i = 0; i < frame->rets.size; ++i) {
    const auto* buffer = static_cast<const XLA_FFI_Buffer*>(frame->rets.rets[i]);
    if (buffer->dtype != XLA_FFI_DataType_TOKEN) buffers.push_back(buffer);
  }
  std::vector<float*> outputs;
  absl::Status status = MatchBuffers((*engine)->layout(), op, buffers, &outputs);
  if (!status.ok()) return MakeError(api, status);

  std::shared_ptr<Completion> completion;
  if (XLA_FFI_Error* error = Completion::Create(frame, &completion)) return error;
  const ChannelKey key{kNoLaunch, kEmbeddingName, (*core)->core};
  auto wait = std::make_shared<ChannelWait>(/*cancellation=*/nullptr, key, op);
  wait->Watch();
  wait->Began(GetChannels().Receive(
      key,
      [wait, completion, op, engine = *std::move(engine), outputs = std::move(outputs),
       core = (*core)->core, launch = (*core)->launch_id](absl::StatusOr<TensorMessage> received) {
        wait->Done();
        if (!received.ok()) {
          completion->Complete(received.status());
          return;
        }
        const BatchMessage* message = Unwrap(received->tensors);
        if (message == nullptr || message->engine != engine) {
          completion->Complete(absl::InternalError(
              absl::StrCat("Op ", op, " got a batch of another embedding configuration.")));
          return;
        }
        std::make_shared<UpdateWait>(engine, core, op)
            ->Begin(launch, message->batch, outputs, completion);
      },
      (*core)->launch_id));
  return nullptr;
}

XLA_FFI_Error* SendGradients(XLA_FFI_CallFrame* frame) {
  const XLA_FFI_Api* api = frame->api;
  const std::string op = StringAttribute(frame->attrs, kEmbeddingOp);
  absl::StatusOr<CoreContext*> core = CoreOf(frame);
  if (!core.ok()) return MakeError(api, core.status());
  auto engine = RequireEmbedding(op);
  if (!engine.ok()) return MakeError(api, engine.status());
  const int64_t num_gradients = IntegerAttribute(frame->attrs, kNumGradients);
  std::vector<const XLA_FFI_Buffer*> buffers;
  std::vector<float> dynamic_inputs;
  for (int64_t i = 0; i < frame->args.size; ++i) {
    const auto* buffer = static_cast<const XLA_FFI_Buffer*>(frame->args.args[i]);
    if (buffer->dtype == XLA_FFI_DataType_TOKEN) continue;
    if (i < num_gradients) {
      buffers.push_back(buffer);
    } else {
      dynamic_inputs.push_back(*static_cast<const float*>(buffer->data));
    }
  }
  std::vector<float*> gradients;
  absl::Status status = MatchBuffers((*engine)->layout(), op, buffers, &gradients);
  if (status.ok()) {
    const std::vector<const float*> values(gradients.begin(), gradients.end());
    status = (*engine)->Send((*core)->core, values, std::move(dynamic_inputs));
  }
  return status.ok() ? nullptr : MakeError(api, status);
}

XLA_FFI_Error* HandleReceive(XLA_FFI_CallFrame* frame) {
  return AnswersMetadata(frame) ? nullptr : ReceiveActivations(frame);
}

XLA_FFI_Error* HandleSend(XLA_FFI_CallFrame* frame) {
  return AnswersMetadata(frame) ? nullptr : SendGradients(frame);
}

[[maybe_unused]] const bool kReceiveRegistered =
    RegisterCustomCall(kReceiveActivationsTarget, HandleReceive);
[[maybe_unused]] const bool kSendRegistered = RegisterCustomCall(kSendGradientsTarget, HandleSend);

}  // namespace
}  // namespace tf_tpu_ext
