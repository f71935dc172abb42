// What a watched program shows of its values while it runs.
#ifndef TF_TPU_EXT_CC_PROGRAM_PROBES_H_
#define TF_TPU_EXT_CC_PROGRAM_PROBES_H_

#include <optional>
#include <string>
#include <vector>

#include "cc/program/value_numbers.h"

namespace tf_tpu_ext {

// One value, as an op of the program computes it. In a loop it is shown in each iteration. Probes
// are numbered in an order in which the program may compute them.
struct Probe {
  // The TensorFlow op, as XLA's metadata names it, the Python line that made it, if known, and the
  // HLO instruction: "log f32[4,8]".
  std::string op;
  std::string source;
  std::string instruction;
  // Values of one computation that were shown equally often belong together.
  int computation = 0;
  // The other probes whose values it is computed from.
  std::vector<int> operands;
  // Set if it is a parameter of the program.
  std::optional<ParameterNumber> parameter;
  // Whether it only brings a value into the program, or from one iteration to the next.
  bool carries = false;
};

// A variable that all replicas hold alike.
struct MirroredVariable {
  ParameterNumber parameter;
  // The new value, if the program gives it one.
  std::optional<ResultNumber> result;
};

struct ProbedResult {
  // Its probe, or those that it comes from.
  std::vector<int> probes;
  // The variable whose new value it is, if it is one.
  std::optional<ParameterNumber> variable;
};

struct Probes {
  std::vector<Probe> probes;
  ByNumber<ResultNumber, ProbedResult> results;
  // What the program hands to the host while it runs.
  std::vector<int> to_host;
  std::vector<MirroredVariable> mirrored;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROGRAM_PROBES_H_
