// What happens to the functions of a program between the bridge's module and XLA, apart from the
// order of host transfers and from overrides.
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

// Takes all traces of placement out of the functions, so that the whole replica becomes one
// program.
absl::Status RemovePlacement(tensorflow::FunctionLibraryDefinition* library);

// Lets the transfers of clusters in the host graph tell which cluster they belong to, for
// statistics: `marks` are the clusters' by channel (cluster_marks.h). The bridge may split a
// cluster: the first part counts its calls.
absl::Status CountClusters(const std::map<std::string, std::string>& marks,
                           tensorflow::FunctionLibraryDefinition* library);

// Numbers the functions that the program calls on the host, and takes them out of it.
absl::Status TakeHostFunctions(tensorflow::FunctionLibraryDefinition* library,
                               std::vector<HostFunctionSource>* functions);

// Lets an XlaCallModule, a module of StableHLO that JAX has exported for one or more platforms, run
// as on a TPU where it was exported for that: XLA's compiler takes us for a CPU. False if the node
// is another op, or its module is not for TPUs.
bool ChooseTpuPlatform(tensorflow::NodeDef* node);

// The same for all functions.
absl::Status ChooseTpuPlatforms(tensorflow::FunctionLibraryDefinition* library);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_LOWER_REWRITE_FUNCTIONS_H_
