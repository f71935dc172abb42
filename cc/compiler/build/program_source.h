// A program that is lowered but not yet compiled, and the forms in which it may be compiled.
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

// A program to be compiled: the whole program, or what remains after a part has been split off.
struct ProgramSource {
  std::shared_ptr<const xla::HloModule> module;
  xla::CompileOptions options;
  CompiledProgram compiled;  // without an executable
  int num_arguments = 0;
  // Whether the program has several replicas, each on one core and with results of the same sizes.
  bool replicas_alike = false;
  // Parameters that should be equal on all replicas.
  std::vector<ParameterNumber> mirrored_parameters;
  // Variables with their new values.
  std::vector<std::pair<ArgumentNumber, OutputNumber>> updated_arguments;
  // Whether the part that all replicas compute identically may be split off.
  bool shares_update = false;
  // Whether TensorFlow's kernels compute products of bfloat16.
  bool calls_kernels_for_products = false;
  // Whether the program may overwrite variables: it has a single core, and nothing can interrupt
  // it.
  bool overwrites_variables = false;
};

// Compiles the program of each replica. If allowed, compiles the part that all replicas compute
// identically as a shared update.
absl::StatusOr<std::shared_ptr<const CompiledProgram>> BuildSource(XlaCompiler& compiler,
                                                                   ProgramSource source);

// Lets the whole program write new values of variables over the old ones.
absl::Status DonateVariables(const ProgramSource& source, xla::HloModule* module);

// Compiles the program for groups of replicas. Returns null if it can't run in groups.
absl::StatusOr<std::shared_ptr<const BatchedReplicas>> BuildBatched(
    XlaCompiler& compiler, const ProgramSource& whole,
    const tensorflow::tpu::TPUCompileMetadataProto& metadata);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_BUILD_PROGRAM_SOURCE_H_
