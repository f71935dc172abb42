// The minor version of TensorFlow, determined from the wheel's headers. Only files in cc/abi use
// it.
#ifndef TF_TPU_EXT_CC_ABI_XLA_MINOR_H_
#define TF_TPU_EXT_CC_ABI_XLA_MINOR_H_

#if __has_include("xla/future.h")
#define TF_TPU_EXT_TENSORFLOW_MINOR 21
#elif __has_include("xla/runtime/execution_graph.h")
#define TF_TPU_EXT_TENSORFLOW_MINOR 20
#else
#define TF_TPU_EXT_TENSORFLOW_MINOR 19
#endif

#endif  // TF_TPU_EXT_CC_ABI_XLA_MINOR_H_
