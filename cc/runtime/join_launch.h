// How an op adds its core to a launch.
#ifndef TF_TPU_EXT_CC_RUNTIME_JOIN_LAUNCH_H_
#define TF_TPU_EXT_CC_RUNTIME_JOIN_LAUNCH_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "cc/base/core_numbers.h"
#include "cc/base/launch_numbers.h"
#include "cc/runtime/launch_table.h"
#include "cc/runtime/pod_programs.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_tpu_ext {

// Adds a core to the launch, and lets a cancellation of the op's step reach the launch. After the
// launch, `write` receives the results unless it failed, and then `done` is called. If this returns
// an error, neither is called.
absl::Status JoinLaunch(tensorflow::OpKernelContext* context, LaunchTable* table, Core core,
                        LaunchId launch_id, const FoundProgram& program, StepArguments arguments,
                        std::function<absl::Status(std::vector<tensorflow::Tensor>)> write,
                        tensorflow::AsyncOpKernel::DoneCallback done);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_JOIN_LAUNCH_H_
