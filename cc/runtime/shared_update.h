// Runs what all replicas of a step compute identically, once for all of them.
#ifndef TF_TPU_EXT_CC_RUNTIME_SHARED_UPDATE_H_
#define TF_TPU_EXT_CC_RUNTIME_SHARED_UPDATE_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "cc/base/core_context.h"
#include "cc/base/core_numbers.h"
#include "cc/base/number.h"
#include "cc/program/shared_update.h"
#include "cc/program/value_numbers.h"
#include "cc/runtime/launch_services.h"
#include "cc/runtime/run_in_place.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {

// The state of one replica, or of a group of replicas that ran as one, before the update.
struct UpdateReplica {
  CoreContext context;
  // Its core, or the cores of the group.
  std::vector<Core> cores;
  Arguments arguments;
  // One element per replica.
  std::vector<std::shared_ptr<const ArgumentVariables>> variables;
  // The outputs of the replicas' program.
  Outputs outputs;
};

bool HaveEqualBytes(const tensorflow::Tensor& a, const tensorflow::Tensor& b);

// Combines the replicas' values, runs the shared update of `program`, and calls `done` on some
// thread with the step's outputs for each of the `replicas`.
//
// If the replicas' arguments are equal, as those of mirrored variables are, the update runs once,
// and its results belong to all replicas. Otherwise it runs once for each replica. Variables that
// nobody else reads are overwritten in place while their locks are held.
void StartSharedUpdate(const LaunchServices& services, std::shared_ptr<Program> program,
                       ByNumber<StepRun, UpdateReplica> replicas,
                       std::function<void(absl::Status, ByNumber<StepRun, Outputs>)> done);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_SHARED_UPDATE_H_
