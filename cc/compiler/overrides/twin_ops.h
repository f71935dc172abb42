// Ops of ours that stand in for TensorFlow's in programs: each has the signature of a stock op, and
// an XLA kernel of its own.
#ifndef TF_TPU_EXT_CC_COMPILER_OVERRIDES_TWIN_OPS_H_
#define TF_TPU_EXT_CC_COMPILER_OVERRIDES_TWIN_OPS_H_

#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tensorflow/core/framework/function.h"

namespace tf_tpu_ext {

// Registers for each stock op one whose name is the prefix and the stock op's. `summary` stands
// behind the stock op's name in its documentation. To be called when the library is loaded.
void RegisterTwinOps(absl::string_view prefix, const absl::flat_hash_set<std::string>& ops,
                     absl::string_view summary);

// Puts the twins of that prefix in place of the stock ops, in all functions.
absl::Status ReplaceByTwins(absl::string_view prefix, const absl::flat_hash_set<std::string>& ops,
                            tensorflow::FunctionLibraryDefinition* library);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_OVERRIDES_TWIN_OPS_H_
