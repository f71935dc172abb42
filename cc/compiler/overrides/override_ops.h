// Overrides: ops of ours that replace TensorFlow's in programs. Each has the signature of the stock
// op and its own XLA kernel.
#ifndef TF_TPU_EXT_CC_COMPILER_OVERRIDES_OVERRIDE_OPS_H_
#define TF_TPU_EXT_CC_COMPILER_OVERRIDES_OVERRIDE_OPS_H_

#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tensorflow/core/framework/function.h"

namespace tf_tpu_ext {

// Registers an override of each stock op, whose name is the prefix and the stock op's name. In its
// documentation, `summary` follows the stock op's name. Call this while the library is being
// loaded.
void RegisterOverrideOps(absl::string_view prefix, const absl::flat_hash_set<std::string>& ops,
                         absl::string_view summary);

// Replaces the stock ops with the overrides of this prefix in all functions.
absl::Status ReplaceByOverrides(absl::string_view prefix,
                                const absl::flat_hash_set<std::string>& ops,
                                tensorflow::FunctionLibraryDefinition* library);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_OVERRIDES_OVERRIDE_OPS_H_
