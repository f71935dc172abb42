// The launch ID of a step, with which the compile op tells all ops of the step that they belong
// together.
#ifndef TF_TPU_EXT_CC_RUNTIME_LAUNCH_IDS_H_
#define TF_TPU_EXT_CC_RUNTIME_LAUNCH_IDS_H_

#include <string>

#include "absl/status/statusor.h"
#include "cc/base/launch_numbers.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_tpu_ext {

// Attributes of a compile op that serves only one replica, set by a graph pass: which ops of its
// graph serve the others, and a number that distinguishes it from them.
inline constexpr char kLaunchGroup[] = "_tpu_ext_launch_group";
inline constexpr char kLaunchMember[] = "_tpu_ext_launch_member";

class LaunchTable;

// The ID of a new launch in the table. All members of the group get the same ID in this run of the
// graph and this iteration of an enclosing loop.
absl::StatusOr<LaunchId> LaunchIdOfGroup(tensorflow::OpKernelContext* context, LaunchTable* table,
                                         const std::string& group, const std::string& member,
                                         int num_members);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_LAUNCH_IDS_H_
