// How a running program calls a function on the host.
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cc/base/core_context.h"
#include "cc/base/custom_call.h"
#include "cc/base/process.h"
#include "cc/profile/recorder.h"
#include "cc/program/host_call.h"
#include "cc/transfer/call_buffers.h"
#include "cc/transfer/host_calls.h"
#include "cc/transfer/host_order.h"
#include "cc/transfer/transfer_stats.h"
#include "tensorflow/core/framework/tensor.h"
#include "xla/ffi/api/c_api.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;

class HostCustomCall : public CustomCall {
 public:
  HostCustomCall(HostCall call, ProfileRecorder* recorder)
      : call_(std::move(call)), recorder_(recorder) {}

  absl::Status Execute(XLA_FFI_CallFrame* frame) const override {
    const absl::Time began = absl::Now();
    const CoreContext* core = CoreOf(*frame);
    if (core == nullptr || core->host_calls == nullptr) return NoTpuProgram(call_.op);
    HostCalls& calls = *core->host_calls;
    std::vector<CallResult> results = ResultsOf(frame->rets);
    // A call without results need not be waited for, so it never holds up the program's thread.
    ProfiledWait wait(recorder_, absl::StrCat("host call: ", call_.op), core->run_id, core->core);
    if (RecordedWait* described = wait.wait()) described->source = calls.SourceOf(call_.function);
    if (core->host_order != nullptr) return CallLater(*frame, *core, std::move(results));
    if (!results.empty() && calls.MayRunNow(call_.function)) {
      const absl::Status status = RunNow(*frame, results, &calls);
      wait.End();
      return status;
    }
    TF_ASSIGN_OR_RETURN(std::vector<Tensor> inputs,
                        ReadOperands(frame->args, call_.dynamic, OperandMemory::kCopied));
    if (RecordedWait* described = wait.wait()) described->bytes = TotalBytes(inputs);
    if (results.empty()) {
      calls.Start(call_.function, std::move(inputs), nullptr);
      calls.CountSending(call_.function, absl::Now() - began);
      wait.End();
      return absl::OkStatus();
    }
    TF_ASSIGN_OR_RETURN(std::shared_ptr<Completion> completion, Completion::Create(frame));
    calls.Start(
        call_.function, std::move(inputs),
        [completion = std::move(completion), results = std::move(results), op = call_.op,
         wait = std::move(wait)](const absl::StatusOr<std::vector<Tensor>>& outputs) mutable {
          if (RecordedWait* described = wait.wait(); described && outputs.ok()) {
            described->bytes += TotalBytes(*outputs);
          }
          wait.End();
          completion->Complete(outputs.ok() ? WriteResults(results, *outputs, op)
                                            : outputs.status());
        });
    return absl::OkStatus();
  }

 private:
  absl::Status RunNow(const XLA_FFI_CallFrame& frame, const std::vector<CallResult>& results,
                      HostCalls* calls) const {
    TF_ASSIGN_OR_RETURN(const std::vector<Tensor> inputs,
                        ReadOperands(frame.args, call_.dynamic, OperandMemory::kBorrowed));
    std::vector<Tensor> outputs;
    TF_RETURN_IF_ERROR(calls->RunNow(call_.function, inputs, &outputs));
    return WriteResults(results, outputs, call_.op);
  }

  // The core continues once the call has been made, which keeps its calls in order.
  absl::Status CallLater(XLA_FFI_CallFrame& frame, const CoreContext& core,
                         std::vector<CallResult> results) const {
    TF_ASSIGN_OR_RETURN(std::vector<Tensor> inputs,
                        ReadOperands(frame.args, call_.dynamic, OperandMemory::kCopied));
    TF_ASSIGN_OR_RETURN(std::shared_ptr<Completion> completion, Completion::Create(&frame));
    core.host_order->Note(core.slot, core.host_calls->NameOf(call_.function));
    core.host_order->Later(
        core.slot, [calls = core.host_calls, function = call_.function, inputs = std::move(inputs),
                    results = std::move(results), completion, op = call_.op]() mutable {
          if (results.empty()) {
            calls->Start(function, std::move(inputs), nullptr);
            return completion->Complete(absl::OkStatus());
          }
          calls->Start(function, std::move(inputs),
                       [completion, results = std::move(results),
                        op](const absl::StatusOr<std::vector<Tensor>>& outputs) {
                         completion->Complete(outputs.ok() ? WriteResults(results, *outputs, op)
                                                           : outputs.status());
                       });
        });
    return absl::OkStatus();
  }

  const HostCall call_;
  ProfileRecorder* const recorder_;
};

absl::StatusOr<std::unique_ptr<CustomCall>> MakeHostCall(const CallAttributes& attributes) {
  TF_ASSIGN_OR_RETURN(HostCall call, DecodeHostCall(attributes));
  return std::make_unique<HostCustomCall>(std::move(call), Process::Get().recorder);
}

[[maybe_unused]] const bool kHostCallRegistered = RegisterCustomCall<MakeHostCall>(kHostCallTarget);

}  // namespace
}  // namespace tf_tpu_ext
