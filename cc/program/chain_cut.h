// A call that returns its operand, to make XLA end a kernel there.
#ifndef TF_TPU_EXT_CC_PROGRAM_CHAIN_CUT_H_
#define TF_TPU_EXT_CC_PROGRAM_CHAIN_CUT_H_

namespace tf_tpu_ext {

// The target of custom calls with one array, whose result is that array in the same memory.
inline constexpr char kChainCutTarget[] = "TfTpuExtChainCut";

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROGRAM_CHAIN_CUT_H_
