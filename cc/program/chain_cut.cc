#include "cc/program/chain_cut.h"

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cc/base/custom_call.h"
#include "xla/ffi/api/c_api.h"

namespace tf_tpu_ext {
namespace {

class ChainCut : public CustomCall {
 public:
  absl::Status Execute(XLA_FFI_CallFrame* frame) const override {
    const auto* from = static_cast<const XLA_FFI_Buffer*>(frame->args.args[0]);
    const auto* to = static_cast<const XLA_FFI_Buffer*>(frame->rets.rets[0]);
    if (from->data == to->data) return absl::OkStatus();
    return absl::InternalError(
        "The result of a cut is in other memory than its operand. Report this with the program.");
  }
};

absl::StatusOr<std::unique_ptr<CustomCall>> MakeChainCut(const CallAttributes& /*attributes*/) {
  return std::make_unique<ChainCut>();
}

[[maybe_unused]] const bool kRegistered = RegisterCustomCall<MakeChainCut>(kChainCutTarget);

}  // namespace
}  // namespace tf_tpu_ext
