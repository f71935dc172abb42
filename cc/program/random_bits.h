// Random bits from native code: XLA's version of the Philox generator computes each block of four
// numbers four times, once for each number.
#ifndef TF_TPU_EXT_CC_PROGRAM_RANDOM_BITS_H_
#define TF_TPU_EXT_CC_PROGRAM_RANDOM_BITS_H_

namespace tf_tpu_ext {

// The target of custom calls with one array of states, u64[..., 2 or 3], in the form that XLA's
// RngBitGenerator takes for RNG_PHILOX. The result is an array of integers of 32 or 64 bits, with
// an equal part for each state: what RngBitGenerator makes of that state.
inline constexpr char kRandomBitsTarget[] = "TfTpuExtRandomBits";

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROGRAM_RANDOM_BITS_H_
