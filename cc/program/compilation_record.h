#ifndef TF_TPU_EXT_CC_PROGRAM_COMPILATION_RECORD_H_
#define TF_TPU_EXT_CC_PROGRAM_COMPILATION_RECORD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace tf_tpu_ext {

// What is known about an argument when the program is launched.
struct ArgumentName {
  std::string name;
  bool is_variable = false;
};

// An argument for which a program was compiled.
struct RecordedArgument {
  // The name of the variable or of the function's input; empty if it has none.
  std::string name;
  std::string type;
  std::string shape;
  // Distinguishes the value from others, if it is compiled in; empty otherwise.
  std::string value;
  int64_t bytes = 0;
  bool is_variable = false;
  // Whether the true size of a dimension is known only when the program runs.
  bool is_dynamic = false;
};

// Something that a TPU rejects or is slow at.
struct ProgramNote {
  // One of the kinds that tf_tpu_ext/verdict/_records.py lists.
  std::string kind;
  std::string what;
  int64_t count = 0;
  // The first op whose line is known, or else the first.
  std::string op;
  std::string source;
};

// The buffers of one core's run, in bytes.
struct ProgramMemory {
  int64_t arguments = 0;
  int64_t results = 0;
  int64_t temporaries = 0;
};

// One compilation, as compilation_stats() reports it.
struct CompilationRecord {
  int64_t program_id = 0;
  // Identifies the graph, the arguments and the options.
  uint64_t key_hash = 0;
  // The last earlier program with the same key, which failed or was given up; 0 if there is none.
  int64_t same_as = 0;
  std::string name;
  std::string argument_shapes;
  int num_replicas = 1;
  int num_cores_per_replica = 1;
  // The number of replicas that run as one program.
  int batched_replicas = 1;
  std::vector<RecordedArgument> arguments;
  // The TensorFlow op of the first instruction; empty if unknown.
  std::string first_op;
  // The options that the program was compiled with.
  std::string options;
  std::vector<ProgramNote> notes;
  ProgramMemory memory;
  absl::Time started;
  absl::Duration lowering;
  absl::Duration building;
  // Whether all of its machine code came from the CompilationCache.
  bool restored = false;
  // Ops that TensorFlow's own kernels compute.
  int64_t tensorflow_kernels = 0;
  // Approximately how much memory the program takes.
  int64_t bytes = 0;
  int64_t hits = 0;
  // Empty if the compilation succeeded.
  std::string error;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROGRAM_COMPILATION_RECORD_H_
