// Calls that copy many small arrays into one, and back.
#ifndef TF_TPU_EXT_CC_PROGRAM_PACK_H_
#define TF_TPU_EXT_CC_PROGRAM_PACK_H_

namespace tf_tpu_ext {

// The target of custom calls whose result is the concatenation of their operands, all vectors of
// one type.
inline constexpr char kPackTarget[] = "TfTpuExtPack";

// The target of custom calls whose operand is the concatenation of their results, all vectors of
// one type.
inline constexpr char kUnpackTarget[] = "TfTpuExtUnpack";

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROGRAM_PACK_H_
