#include "cc/program/chain_cut.h"

#include <cstring>

#include "absl/status/status.h"
#include "cc/base/custom_call.h"

namespace tf_tpu_ext {
namespace {

XLA_FFI_Error* Handler(XLA_FFI_CallFrame* frame) {
  if (AnswersMetadata(frame)) return nullptr;
  const auto* from = static_cast<const XLA_FFI_Buffer*>(frame->args.args[0]);
  const auto* to = static_cast<const XLA_FFI_Buffer*>(frame->rets.rets[0]);
  if (from->data != to->data) {
    return MakeError(frame->api, absl::InternalError("The result of a cut is in other memory than "
                                                     "its operand. Report this with the program."));
  }
  return nullptr;
}

[[maybe_unused]] const bool kRegistered = RegisterCustomCall(kChainCutTarget, Handler);

}  // namespace
}  // namespace tf_tpu_ext
