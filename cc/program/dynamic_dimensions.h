// Which dimensions of a custom call's operands are dynamic.
#ifndef TF_TPU_EXT_CC_PROGRAM_DYNAMIC_DIMENSIONS_H_
#define TF_TPU_EXT_CC_PROGRAM_DYNAMIC_DIMENSIONS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tf_tpu_ext {

// One dynamic dimension. Its operand is padded, and its true size is a separate operand: the sizes
// of all dynamic dimensions follow the operands, in the order of this list.
struct DynamicDimension {
  int operand = 0;
  int dimension = 0;

  friend bool operator==(const DynamicDimension& a, const DynamicDimension& b) {
    return a.operand == b.operand && a.dimension == b.dimension;
  }
};

// The attribute of a custom call that lists its dynamic dimensions.
inline constexpr char kDynamicAttribute[] = "dynamic";

// Encodes the list as one attribute of a call: "operand:dimension,...".
std::string EncodeDynamicDimensions(const std::vector<DynamicDimension>& dynamic);
absl::StatusOr<std::vector<DynamicDimension>> DecodeDynamicDimensions(absl::string_view text);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROGRAM_DYNAMIC_DIMENSIONS_H_
