// The op that TensorFlow's PreemptionCheckpointHandler asks under a TPUStrategy. Its CPU wheel has
// the Python function of the op, but not the op.
#ifndef TF_TPU_EXT_CC_KERNELS_CHECK_PREEMPTION_H_
#define TF_TPU_EXT_CC_KERNELS_CHECK_PREEMPTION_H_

namespace tf_tpu_ext {

// Registers the op and its kernel, unless TensorFlow has them.
void RegisterCheckPreemption();

// What the op tells from now on: whether this process is about to be ended. Thread-safe.
void SetPreempted(bool value);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_KERNELS_CHECK_PREEMPTION_H_
