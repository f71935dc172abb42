#include "cc/base/memory.h"

#include "absl/strings/str_cat.h"
#include "cc/base/fault_points.h"

namespace tf_tpu_ext {

absl::Status CheckMemory(const tensorflow::Tensor& tensor, absl::string_view user,
                         absl::string_view use) {
  if (tensor.data() != nullptr || tensor.TotalBytes() == 0) {
    return FaultAt(FaultPoint::kAllocation);
  }
  return absl::ResourceExhaustedError(
      absl::StrCat(user, " needs ", tensor.TotalBytes(), " bytes of memory for ", use,
                   ", which the host does not have. Use a smaller batch for each core, or fewer "
                   "cores."));
}

}  // namespace tf_tpu_ext
