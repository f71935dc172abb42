// Custom calls by which a running program receives activations from the embedding engine and sends
// it gradients.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cc/base/core_context.h"
#include "cc/base/custom_call.h"
#include "cc/base/process.h"
#include "cc/base/wait_monitor.h"
#include "cc/embedding/batch_message.h"
#include "cc/embedding/current_embedding.h"
#include "cc/program/embedding_call.h"
#include "cc/transfer/call_buffers.h"
#include "cc/transfer/channels.h"
#include "cc/transfer/monitored_channels.h"
#include "xla/ffi/api/c_api.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

// Where a call runs, and with which engine.
struct Place {
  const CoreContext* core = nullptr;
  std::shared_ptr<EmbeddingEngine> engine;
};

absl::StatusOr<Place> PlaceOf(const XLA_FFI_CallFrame& frame, const EmbeddingSlot& embedding,
                              const std::string& op) {
  Place place;
  place.core = CoreOf(frame);
  if (place.core == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("Op ", op, " uses a TPU core's embedding and can run only in a TPU program."));
  }
  TF_ASSIGN_OR_RETURN(place.engine, embedding.Require(op));
  return place;
}

// The buffers as one float array for each output of the layout.
absl::StatusOr<std::vector<float*>> MatchBuffers(const EmbeddingLayout& layout,
                                                 const std::string& op,
                                                 absl::Span<const XLA_FFI_Buffer* const> buffers) {
  if (buffers.size() != layout.outputs.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("Op ", op, " was compiled for ", buffers.size(),
                     " tensors of embeddings; the TPU is configured for ", layout.outputs.size(),
                     ". Trace the program anew for a new configuration."));
  }
  std::vector<float*> arrays;
  arrays.reserve(buffers.size());
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
    arrays.push_back(static_cast<float*>(buffers[i]->data));
  }
  return arrays;
}

// A lookup that waits for the update of a step. The wait ends with the update or at the time limit.
class UpdateWait : public std::enable_shared_from_this<UpdateWait> {
 public:
  UpdateWait(std::shared_ptr<EmbeddingEngine> engine, WaitMonitor* wait_monitor, int core,
             std::string op)
      : engine_(std::move(engine)), wait_monitor_(*wait_monitor), core_(core), op_(std::move(op)) {}

  void Begin(int64_t launch, std::shared_ptr<const EmbeddingBatch> batch,
             std::vector<float*> outputs, std::shared_ptr<Completion> completion) {
    const auto id =
        engine_->Receive(core_, launch, std::move(batch), std::move(outputs),
                         [self = shared_from_this(),
                          completion = std::move(completion)](const absl::Status& status) {
                           self->Done();
                           completion->Complete(status);
                         });
    absl::MutexLock lock(&mutex_);
    if (done_) return;
    monitored_ = wait_monitor_.Begin([self = shared_from_this(), id](absl::Duration waited) {
      self->engine_->Cancel(
          id, absl::DeadlineExceededError(absl::StrCat(
                  "Op ", self->op_, " waited ", absl::FormatDuration(waited), ": ",
                  self->engine_->DescribeWait(self->core_),
                  ". Find out which core enqueued or sent less, or ", kRaiseWaitLimit)));
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
    if (monitored != 0) wait_monitor_.End(monitored);
  }

  const std::shared_ptr<EmbeddingEngine> engine_;
  WaitMonitor& wait_monitor_;
  const int core_;
  const std::string op_;
  absl::Mutex mutex_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  WaitMonitor::WaitId monitored_ ABSL_GUARDED_BY(mutex_) = 0;
};

class ReceiveActivations : public CustomCall {
 public:
  ReceiveActivations(ReceiveActivationsCall call, const EmbeddingSlot* embedding,
                     TensorChannels* channels, WaitMonitor* wait_monitor)
      : call_(std::move(call)),
        embedding_(*embedding),
        channels_(channels, wait_monitor),
        wait_monitor_(*wait_monitor) {}

  absl::Status Execute(XLA_FFI_CallFrame* frame) const override {
    TF_ASSIGN_OR_RETURN(Place place, PlaceOf(*frame, embedding_, call_.op));
    TF_ASSIGN_OR_RETURN(std::vector<float*> outputs,
                        MatchBuffers(place.engine->layout(), call_.op, ResultBuffers(frame->rets)));
    TF_ASSIGN_OR_RETURN(std::shared_ptr<Completion> completion, Completion::Create(frame));
    const ChannelKey key{kNoLaunch, kEmbeddingName, place.core->core.value()};
    channels_.Receive(
        key, {call_.op, place.core->launch_id.value()},
        [completion = std::move(completion), op = call_.op, engine = std::move(place.engine),
         wait_monitor = &wait_monitor_, outputs = std::move(outputs),
         core = place.core->core.value(),
         launch = place.core->launch_id.value()](absl::StatusOr<TensorMessage> received) {
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
          std::make_shared<UpdateWait>(engine, wait_monitor, core, op)
              ->Begin(launch, message->batch, outputs, completion);
        });
    return absl::OkStatus();
  }

 private:
  const ReceiveActivationsCall call_;
  const EmbeddingSlot& embedding_;
  const MonitoredChannels channels_;
  WaitMonitor& wait_monitor_;
};

class SendGradients : public CustomCall {
 public:
  SendGradients(SendGradientsCall call, const EmbeddingSlot* embedding)
      : call_(std::move(call)), embedding_(*embedding) {}

  absl::Status Execute(XLA_FFI_CallFrame* frame) const override {
    TF_ASSIGN_OR_RETURN(const Place place, PlaceOf(*frame, embedding_, call_.op));
    const CallBuffers operands = OperandBuffers(frame->args);
    const auto num_gradients = std::min(operands.size(), static_cast<size_t>(call_.num_gradients));
    TF_ASSIGN_OR_RETURN(const std::vector<float*> gradients,
                        MatchBuffers(place.engine->layout(), call_.op,
                                     absl::MakeSpan(operands).first(num_gradients)));
    std::vector<float> dynamic_inputs;
    for (size_t i = num_gradients; i < operands.size(); ++i) {
      dynamic_inputs.push_back(*static_cast<const float*>(operands[i]->data));
    }
    const std::vector<const float*> values(gradients.begin(), gradients.end());
    return place.engine->Send(place.core->core.value(), values, std::move(dynamic_inputs));
  }

 private:
  const SendGradientsCall call_;
  const EmbeddingSlot& embedding_;
};

absl::StatusOr<std::unique_ptr<CustomCall>> MakeReceiveActivations(
    const CallAttributes& attributes) {
  TF_ASSIGN_OR_RETURN(ReceiveActivationsCall call, DecodeReceiveActivationsCall(attributes));
  const Process& process = Process::Get();
  return std::make_unique<ReceiveActivations>(std::move(call), process.embedding, process.channels,
                                              process.wait_monitor);
}

absl::StatusOr<std::unique_ptr<CustomCall>> MakeSendGradients(const CallAttributes& attributes) {
  TF_ASSIGN_OR_RETURN(SendGradientsCall call, DecodeSendGradientsCall(attributes));
  return std::make_unique<SendGradients>(std::move(call), Process::Get().embedding);
}

[[maybe_unused]] const bool kReceiveRegistered =
    RegisterCustomCall<MakeReceiveActivations>(kReceiveActivationsTarget);
[[maybe_unused]] const bool kSendRegistered =
    RegisterCustomCall<MakeSendGradients>(kSendGradientsTarget);

}  // namespace
}  // namespace tf_tpu_ext
