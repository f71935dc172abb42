// The op that TensorFlow's PreemptionCheckpointHandler queries under a TPUStrategy. TensorFlow's
// CPU wheel has the op's Python function, but not the op.
#ifndef TF_TPU_EXT_CC_KERNELS_CHECK_PREEMPTION_H_
#define TF_TPU_EXT_CC_KERNELS_CHECK_PREEMPTION_H_

namespace tf_tpu_ext {

// Registers the op and its kernel, unless TensorFlow has them.
void RegisterCheckPreemption();

// Sets what the op reports from now on: whether this process is about to be ended. Thread-safe.
void SetPreempted(bool value);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_KERNELS_CHECK_PREEMPTION_H_
