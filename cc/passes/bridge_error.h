// Explains what the stock bridge says about ops that a TPU can't run.
#ifndef TF_TPU_EXT_CC_PASSES_BRIDGE_ERROR_H_
#define TF_TPU_EXT_CC_PASSES_BRIDGE_ERROR_H_

#include <functional>
#include <string>

#include "absl/status/status.h"

namespace tf_tpu_ext {

// Turns the bridge's diagnostics about ops without a TPU kernel into one InvalidArgument error,
// which names each op once and says what to do. `locate` returns the names and lines of the ops of
// a type, which the bridge itself does not always know; it may return nothing. Any other status is
// returned unchanged.
absl::Status ExplainBridgeError(
    const absl::Status& status,
    const std::function<std::string(const std::string& type)>& locate = nullptr);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PASSES_BRIDGE_ERROR_H_
