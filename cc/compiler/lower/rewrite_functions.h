// Rewrites the functions of a program between the bridge's module and XLA, except for the order of
// host transfers and for overrides.
#ifndef TF_TPU_EXT_CC_COMPILER_LOWER_REWRITE_FUNCTIONS_H_
#define TF_TPU_EXT_CC_COMPILER_LOWER_REWRITE_FUNCTIONS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cc/program/host_function_source.h"
#include "tensorflow/core/framework/function.h"

namespace tf_tpu_ext {

// tf2xla's attribute of a node: a serialized xla::OpSharding.
inline constexpr char kShardingAttribute[] = "_XlaSharding";

// Removes all traces of placement from the functions, so that the whole replica becomes one
// program.
absl::Status RemovePlacement(tensorflow::FunctionLibraryDefinition* library);

// Labels each cluster's transfers in the host graph, for statistics, with the cluster that they
// belong to. `marks` maps channels to marks of clusters (cluster_marks.h). If the bridge has split
// a cluster, only its first part counts calls.
absl::Status CountClusters(const std::map<std::string, std::string>& marks,
                           tensorflow::FunctionLibraryDefinition* library);

// Numbers the functions that the program calls on the host, and removes them from the program.
absl::Status TakeHostFunctions(tensorflow::FunctionLibraryDefinition* library,
                               std::vector<HostFunctionSource>* functions);

// Makes an XlaCallModule, a StableHLO module that JAX has exported for one or more platforms, run
// as on a TPU if it was exported for TPUs. XLA's compiler would treat it as running on a CPU.
// Returns false if the node is another op, or its module is not for TPUs.
bool ChooseTpuPlatform(tensorflow::NodeDef* node);

// Does the same in all functions.
absl::Status ChooseTpuPlatforms(tensorflow::FunctionLibraryDefinition* library);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_LOWER_REWRITE_FUNCTIONS_H_
