// The tf2xla device through which TensorFlow's own functions call a TPU's compiler, for example
// `experimental_get_compiler_ir(...)(platform_name='TPU')`. It has the kernels that lower our
// programs, so it shows what actually runs.
#include "cc/abi/tensorflow/tf2xla.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"

namespace tf_tpu_ext {
namespace {

REGISTER_XLA_BACKEND("XLA_TPU_JIT", tensorflow::kCpuAllTypes, tensorflow::CpuOpFilter);

}  // namespace
}  // namespace tf_tpu_ext
