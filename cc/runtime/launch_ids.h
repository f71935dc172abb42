// The launch id of a step: how the compile op tells all ops of one step that they belong together.
#ifndef TF_TPU_EXT_CC_RUNTIME_LAUNCH_IDS_H_
#define TF_TPU_EXT_CC_RUNTIME_LAUNCH_IDS_H_

#include <string>

#include "absl/status/statusor.h"
#include "cc/base/launch_numbers.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_tpu_ext {

// Attributes of a compile op that serves one replica only, set by a graph pass: which ops of its
// graph serve the others, and a number that tells it from them.
inline constexpr char kLaunchGroup[] = "_tpu_ext_launch_group";
inline constexpr char kLaunchMember[] = "_tpu_ext_launch_member";

class LaunchTable;

// The id of a new launch of the table, which all members of the group get in this run of the graph,
// and in this iteration of a loop around them.
absl::StatusOr<LaunchId> LaunchIdOfGroup(tensorflow::OpKernelContext* context, LaunchTable* table,
                                         const std::string& group, const std::string& member,
                                         int num_members);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_LAUNCH_IDS_H_
