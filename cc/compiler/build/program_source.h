// A program that is lowered and not yet compiled, and the forms in which it may be compiled.
#ifndef TF_TPU_EXT_CC_COMPILER_BUILD_PROGRAM_SOURCE_H_
#define TF_TPU_EXT_CC_COMPILER_BUILD_PROGRAM_SOURCE_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cc/base/core_numbers.h"
#include "cc/base/number.h"
#include "cc/compiler/build/xla_compiler.h"
#include "cc/program/batched_replicas.h"
#include "cc/program/compiled_program.h"
#include "cc/program/value_numbers.h"
#include "tensorflow/core/protobuf/tpu/compile_metadata.pb.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/pjrt/pjrt_executable.h"

namespace tf_tpu_ext {

// A program as it is compiled: whole, or after something has been split off.
struct ProgramSource {
  std::shared_ptr<const xla::HloModule> module;
  xla::CompileOptions options;
  CompiledProgram compiled;  // without an executable
  int num_arguments = 0;
  // Whether several replicas run it, each on one core and with results of the same sizes.
  bool replicas_alike = false;
  // Parameters that are expected to be equal for all replicas.
  std::vector<ParameterNumber> mirrored_parameters;
  // Variables, each with its new value.
  std::vector<std::pair<ArgumentNumber, OutputNumber>> updated_arguments;
  // Whether what its replicas compute alike may be split off.
  bool shares_update = false;
  // Whether the program may overwrite variables: one of one core, which nothing can stop.
  bool overwrites_variables = false;
};

// Compiles the program of each replica; what its replicas compute alike as a shared update, if it
// may be split off.
absl::StatusOr<std::shared_ptr<const CompiledProgram>> BuildSource(XlaCompiler& compiler,
                                                                   ProgramSource source);

// Lets the whole program write the new values of variables over the old ones.
absl::Status DonateVariables(const ProgramSource& source, xla::HloModule* module);

// Compiles the program of groups of replicas. Nothing if the program is not of that kind.
absl::StatusOr<std::shared_ptr<const BatchedReplicas>> BuildBatched(
    XlaCompiler& compiler, const ProgramSource& whole,
    const tensorflow::tpu::TPUCompileMetadataProto& metadata);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_BUILD_PROGRAM_SOURCE_H_
