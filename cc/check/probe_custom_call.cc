// How a running program shows a value.
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cc/base/core_context.h"
#include "cc/base/custom_call.h"
#include "cc/check/step_check.h"
#include "cc/check/value_summary.h"
#include "cc/program/probe_call.h"
#include "cc/transfer/call_buffers.h"
#include "tensorflow/core/framework/tensor.h"
#include "xla/ffi/api/c_api.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

class ProbeCustomCall : public CustomCall {
 public:
  explicit ProbeCustomCall(ProbeCall call) : call_(std::move(call)) {}

  absl::Status Execute(XLA_FFI_CallFrame* frame) const override {
    const CoreContext* core = CoreOf(*frame);
    if (core == nullptr) return NoTpuProgram("probe");
    // A program from the compilation cache may run in a step that is not checked.
    if (core->check == nullptr) return absl::OkStatus();
    TF_ASSIGN_OR_RETURN(const std::vector<tensorflow::Tensor> operands,
                        ReadOperands(frame->args, call_.dynamic, OperandMemory::kBorrowed));
    if (operands.empty()) return absl::InternalError("A probe has no value.");
    core->check->Show(core->slot, call_.probe, Summarize(operands[0]));
    return absl::OkStatus();
  }

 private:
  const ProbeCall call_;
};

absl::StatusOr<std::unique_ptr<CustomCall>> MakeProbe(const CallAttributes& attributes) {
  TF_ASSIGN_OR_RETURN(ProbeCall call, DecodeProbeCall(attributes));
  return std::make_unique<ProbeCustomCall>(std::move(call));
}

[[maybe_unused]] const bool kProbeRegistered = RegisterCustomCall<MakeProbe>(kProbeTarget);

}  // namespace
}  // namespace tf_tpu_ext
