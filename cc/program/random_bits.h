// Random bits by a call of native code: XLA's form of the Philox generator computes each block of
// four numbers once for each of them.
#ifndef TF_TPU_EXT_CC_PROGRAM_RANDOM_BITS_H_
#define TF_TPU_EXT_CC_PROGRAM_RANDOM_BITS_H_

namespace tf_tpu_ext {

// The target of custom calls of one array of states, u64[..., 2 or 3], as XLA's RngBitGenerator
// takes them for RNG_PHILOX. The result is an array of integers of 32 or 64 bits, an equal part of
// it for each state: what RngBitGenerator makes of it.
inline constexpr char kRandomBitsTarget[] = "TfTpuExtRandomBits";

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROGRAM_RANDOM_BITS_H_
