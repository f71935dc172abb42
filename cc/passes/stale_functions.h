// Removes functions that passes made for a session's graph and that nothing calls anymore.
//
// When a session's graph grows, the passes before the placer run again, on the original graph and
// with a library that contains everything they made before: the bridge copies every function under
// a new name. If the copies stayed, each run of such a session would take longer than the one
// before.
#ifndef TF_TPU_EXT_CC_PASSES_STALE_FUNCTIONS_H_
#define TF_TPU_EXT_CC_PASSES_STALE_FUNCTIONS_H_

#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/graph/graph.h"

namespace tf_tpu_ext {

// The names of the library's functions.
using FunctionNames = absl::flat_hash_set<std::string>;

// Removes the marked functions that the graph does not call; returns the names of the others.
absl::StatusOr<FunctionNames> DropStaleFunctions(const tensorflow::Graph& graph,
                                                 tensorflow::FunctionLibraryDefinition* library);

// Marks the functions that passes have added to `given`.
absl::Status MarkNewFunctions(const FunctionNames& given,
                              tensorflow::FunctionLibraryDefinition* library);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PASSES_STALE_FUNCTIONS_H_
