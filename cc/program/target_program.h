// A program in the form in which a real TPU's compiler is asked about it.
#ifndef TF_TPU_EXT_CC_PROGRAM_TARGET_PROGRAM_H_
#define TF_TPU_EXT_CC_PROGRAM_TARGET_PROGRAM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc/program/compilation_record.h"

namespace tf_tpu_ext {

struct TargetProgram {
  int64_t program_id = 0;
  std::string name;
  std::string argument_shapes;
  int num_replicas = 1;
  int num_cores_per_replica = 1;
  // A serialized HloModuleProto and CompileOptionsProto.
  std::string module;
  std::string options;
  std::vector<ProgramNote> notes;
  // What the module leaves out of the program or replaces; empty if nothing.
  std::string not_asked;
  // Why there is no module; empty if there is one.
  std::string error;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROGRAM_TARGET_PROGRAM_H_
