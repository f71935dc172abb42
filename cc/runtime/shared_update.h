// Runs what all replicas of a step compute alike once for all of them.
#ifndef TF_TPU_EXT_CC_RUNTIME_SHARED_UPDATE_H_
#define TF_TPU_EXT_CC_RUNTIME_SHARED_UPDATE_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "cc/base/core_context.h"
#include "cc/runtime/run_in_place.h"
#include "tensorflow/core/framework/tensor.h"
#include "xla/xla_data.pb.h"

namespace tf_tpu_ext {

// How the values of the replicas become one.
struct Combination {
  enum Kind { kSum, kProduct, kMin, kMax, kFirst };
  Kind kind = kSum;
  xla::PrimitiveType type = xla::PRIMITIVE_TYPE_INVALID;
  // The update takes the values of all replicas and adds them up itself.
  bool by_update = false;
};

// The part of a program that was split off (cc/compiler/replicas/split_update.h), and what belongs
// where.
struct SharedUpdate {
  // Takes the step's arguments, so many, and then for each combination what has become of it: one
  // value, or those of all replicas, one after the other.
  std::shared_ptr<Program> program;
  int num_arguments = 0;
  // What becomes of the last outputs of the replicas' program, one for each.
  std::vector<Combination> combinations;
  // Numbers of the step's outputs: those of the replicas' program, without the last ones, and those
  // of the update.
  std::vector<int> replica_outputs;
  std::vector<int> update_outputs;
  // The arguments that the update reads.
  std::vector<int> read_arguments;
  // The variables it gives new values: numbers of an argument and of an output of the update.
  std::vector<std::pair<int, int>> updated_variables;
};

// The state of one replica, or of a group of replicas that ran as one, before the update.
struct UpdateReplica {
  CoreContext context;
  std::vector<tensorflow::Tensor> arguments;
  // Of each replica.
  std::vector<std::shared_ptr<const ArgumentVariables>> variables;
  // Of the replicas' program.
  std::vector<tensorflow::Tensor> outputs;
};

bool HaveEqualBytes(const tensorflow::Tensor& a, const tensorflow::Tensor& b);

// Combines the replicas' values, runs the shared update of `program`, and calls `done` on some
// thread with the outputs of the step for each replica.
//
// The update runs once if the replicas' arguments are equal, as those of mirrored variables are,
// and its results then belong to all replicas together; else it runs once for each. Variables that
// nobody else reads are overwritten in place, under their locks.
void StartSharedUpdate(
    std::shared_ptr<Program> program, std::vector<UpdateReplica> replicas,
    std::function<void(absl::Status, std::vector<std::vector<tensorflow::Tensor>>)> done);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_SHARED_UPDATE_H_
