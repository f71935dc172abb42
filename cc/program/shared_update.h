// What all replicas of a step compute alike, split off as a program of its own.
#ifndef TF_TPU_EXT_CC_PROGRAM_SHARED_UPDATE_H_
#define TF_TPU_EXT_CC_PROGRAM_SHARED_UPDATE_H_

#include <memory>
#include <utility>
#include <vector>

#include "xla/xla_data.pb.h"

namespace tf_tpu_ext {

struct CompiledProgram;

// How the values of the replicas become one.
struct Combination {
  enum Kind { kSum, kProduct, kMin, kMax, kFirst };
  Kind kind = kSum;
  xla::PrimitiveType type = xla::PRIMITIVE_TYPE_INVALID;
  // The update takes the values of all replicas and adds them up itself.
  bool by_update = false;
};

// The part of a program that was split off (cc/compiler/replicas/split_update.h), and how its
// values relate to those of the step.
struct SharedUpdate {
  // Its arguments are the step's `num_arguments`, and then for each combination what has become of
  // it: one value, or those of all replicas, one after the other.
  std::shared_ptr<const CompiledProgram> program;
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

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROGRAM_SHARED_UPDATE_H_
