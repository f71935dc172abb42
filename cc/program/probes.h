// What a watched program shows of its values while it runs.
#ifndef TF_TPU_EXT_CC_PROGRAM_PROBES_H_
#define TF_TPU_EXT_CC_PROGRAM_PROBES_H_

#include <optional>
#include <string>
#include <vector>

#include "cc/program/value_numbers.h"

namespace tf_tpu_ext {

// One value, as an op of the program computes it. A value in a loop is shown in each iteration.
// Probes are numbered in an order in which the program may compute them.
struct Probe {
  // The TensorFlow op, as XLA's metadata names it; the Python line that made it, if known; and the
  // HLO instruction: "log f32[4,8]".
  std::string op;
  std::string source;
  std::string instruction;
  // Values of one computation that were shown the same number of times belong together.
  int computation = 0;
  // The other probes from whose values it is computed.
  std::vector<int> operands;
  // Set if the value is a parameter of the program.
  std::optional<ParameterNumber> parameter;
  // Whether the op only brings a value into the program, or from one iteration to the next.
  bool carries = false;
};

// A variable that has the same value on all replicas.
struct MirroredVariable {
  ParameterNumber parameter;
  // The new value, if the program assigns one.
  std::optional<ResultNumber> result;
};

struct ProbedResult {
  // Its probe, or the probes of the values that it comes from.
  std::vector<int> probes;
  // The variable whose new value this is, if any.
  std::optional<ParameterNumber> variable;
};

struct Probes {
  std::vector<Probe> probes;
  ByNumber<ResultNumber, ProbedResult> results;
  // Probes of what the program sends to the host while it runs.
  std::vector<int> to_host;
  std::vector<MirroredVariable> mirrored;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROGRAM_PROBES_H_
