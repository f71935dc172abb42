#ifndef TF_TPU_EXT_CC_PASSES_BRIDGE_PASSES_H_
#define TF_TPU_EXT_CC_PASSES_BRIDGE_PASSES_H_

namespace tf_tpu_ext {

// Switches TensorFlow's own MLIR TPU bridge on for graphs that contain replicated TPU computations,
// and for no others.
void RegisterBridgePasses();

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PASSES_BRIDGE_PASSES_H_
