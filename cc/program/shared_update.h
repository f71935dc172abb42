// What all replicas of a step would compute identically, split off as a program of its own.
#ifndef TF_TPU_EXT_CC_PROGRAM_SHARED_UPDATE_H_
#define TF_TPU_EXT_CC_PROGRAM_SHARED_UPDATE_H_

#include <memory>
#include <utility>
#include <vector>

#include "cc/base/number.h"
#include "cc/program/value_numbers.h"
#include "xla/xla_data.pb.h"

namespace tf_tpu_ext {

struct CompiledProgram;

// How the replicas' values become one.
struct Combination {
  enum Kind { kSum, kProduct, kMin, kMax, kFirst };
  Kind kind = kSum;
  xla::PrimitiveType type = xla::PRIMITIVE_TYPE_INVALID;
  // Whether the update takes the values of all replicas and adds them up itself.
  bool by_update = false;
};

// The part of a program that was split off (cc/compiler/replicas/split_update.h), and how its
// values correspond to those of the step.
struct SharedUpdate {
  // Its arguments are the step's `num_arguments`, followed by the outcome of each combination: one
  // value, or the values of all replicas, one after another.
  std::shared_ptr<const CompiledProgram> program;
  int num_arguments = 0;
  // What becomes of the last outputs of the replicas' program, one combination for each.
  std::vector<Combination> combinations;
  // The step's outputs: by output of the replicas' program, except the last ones, and by output of
  // the update.
  ByNumber<OutputNumber, OutputNumber> replica_outputs;
  ByNumber<OutputNumber, OutputNumber> update_outputs;
  // The arguments that the update reads.
  std::vector<ArgumentNumber> read_arguments;
  // The variables to which it assigns new values, each with the corresponding output of the update.
  std::vector<std::pair<ArgumentNumber, OutputNumber>> updated_variables;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROGRAM_SHARED_UPDATE_H_
