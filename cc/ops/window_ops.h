// The ops that slide windows over a batch of arrays, and what their operands are.
#ifndef TF_TPU_EXT_CC_OPS_WINDOW_OPS_H_
#define TF_TPU_EXT_CC_OPS_WINDOW_OPS_H_

#include <string>

#include "absl/container/flat_hash_map.h"

namespace tf_tpu_ext {

// Used instead of an operand's number: the op's result, and no operand.
inline constexpr int kResultOfOp = -1;
inline constexpr int kNoOperand = -2;

// A convolution or pool, or a gradient of one. All its operands except filter and sizes hold a
// batch, with samples as the first dimension.
struct WindowOp {
  enum Family { kConvolution, kDepthwise, kPool };
  Family family;
  int spatial;  // dimensions that windows slide over
  // Which operands, or the result, have the three shapes of the convolution or pool.
  int input;
  int filter;
  int output;
  int sizes = kNoOperand;  // the operand that holds the result's sizes

  bool HoldsBatch(int operand) const { return operand != filter && operand != sizes; }
  // Whether the result holds a batch; otherwise it is a sum over the batch.
  bool MakesBatch() const { return filter != kResultOfOp; }
};

// Keyed by the op's name.
const absl::flat_hash_map<std::string, WindowOp>& WindowOps();

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_OPS_WINDOW_OPS_H_
