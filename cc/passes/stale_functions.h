// Functions that passes made for a session's graph and that nobody calls any more.
//
// A session whose graph grows runs the passes before the placer again, on its original graph and a
// library that holds all that they made before: the bridge copies every function under a new name.
// If those stayed, each run of such a session would take longer than the one before.
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

// Marks the functions that passes have added to those of these names.
absl::Status MarkNewFunctions(const FunctionNames& given,
                              tensorflow::FunctionLibraryDefinition* library);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PASSES_STALE_FUNCTIONS_H_
