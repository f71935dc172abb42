// Lowers the bridge's serialized MLIR module to an XLA computation.
#ifndef TF_TPU_EXT_CC_COMPILER_LOWER_LOWER_MODULE_H_
#define TF_TPU_EXT_CC_COMPILER_LOWER_LOWER_MODULE_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cc/base/pod_shape.h"
#include "cc/base/program_options.h"
#include "cc/compiler/lower/op_lines.h"
#include "cc/program/host_function_source.h"
#include "cc/program/taken_queues.h"
#include "cc/program/value_numbers.h"
#include "tensorflow/compiler/tf2xla/xla_helpers.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/protobuf/tpu/compile_metadata.pb.h"

namespace tf_tpu_ext {

// The tf2xla device whose kernels lower programs.
inline constexpr char kCompilationDevice[] = "XLA_CPU_JIT";

// How the cores of one replica share its computation.
enum class Partitioning {
  kNone,    // one core per replica
  kSpmd,    // XLA splits every op over the cores
  kMerged,  // ops are placed on single cores, and XLA:CPU runs them all as one program
};

Partitioning PartitioningOf(const tensorflow::tpu::TPUCompileMetadataProto& metadata);

struct LoweredModule {
  ProgramOptions options;
  // Whether to lower for a real TPU's compiler, with TensorFlow's kernels only.
  bool for_target = false;
  // The Python lines that made the ops.
  OpLines lines;
  tensorflow::XlaCompilationResult result;
  // Whether the program talks to the host while it runs.
  bool has_host_transfers = false;
  // Whether the other replicas of the step may run other programs.
  bool for_one_replica = false;
  // The pod that the program is for.
  PodShape pod;
  // The functions that the program itself calls on the host.
  std::vector<HostFunctionSource> host_functions;
  // Variables, each with its new value.
  std::vector<std::pair<ArgumentNumber, OutputNumber>> updated_arguments;
  // What the program takes from queues of its cores.
  TakenQueues takes;
};

// What the program in an mlir_module attribute takes from queues, which is known before it is
// lowered.
TakenQueues QueuesOf(const std::string& module);

// Lowers `module`, the mlir_module attribute of a _TPUCompileMlir op, for arguments of the given
// shapes.
absl::Status LowerModule(const std::string& module,
                         const tensorflow::tpu::TPUCompileMetadataProto& metadata,
                         const std::vector<tensorflow::TensorShape>& argument_shapes,
                         LoweredModule* lowered);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_LOWER_LOWER_MODULE_H_
