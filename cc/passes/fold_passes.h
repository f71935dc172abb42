#ifndef TF_TPU_EXT_CC_PASSES_FOLD_PASSES_H_
#define TF_TPU_EXT_CC_PASSES_FOLD_PASSES_H_

namespace tf_tpu_ext {

// Lets clusters of outside compilation be folded before TensorFlow's MLIR passes see a function.
void RegisterFoldPass();

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PASSES_FOLD_PASSES_H_
