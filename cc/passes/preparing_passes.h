#ifndef TF_TPU_EXT_CC_PASSES_PREPARING_PASSES_H_
#define TF_TPU_EXT_CC_PASSES_PREPARING_PASSES_H_

namespace tf_tpu_ext {

// Registers the pass that prepares functions for the bridge before TensorFlow's MLIR passes see
// them.
void RegisterPreparingPass();

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PASSES_PREPARING_PASSES_H_
