#include "cc/program/dynamic_dimensions.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace tf_tpu_ext {

std::string EncodeDynamicDimensions(const std::vector<DynamicDimension>& dynamic) {
  return absl::StrJoin(dynamic, ",", [](std::string* text, const DynamicDimension& each) {
    absl::StrAppend(text, each.operand, ":", each.dimension);
  });
}

absl::StatusOr<std::vector<DynamicDimension>> DecodeDynamicDimensions(absl::string_view text) {
  std::vector<DynamicDimension> dynamic;
  if (text.empty()) return dynamic;
  for (absl::string_view each : absl::StrSplit(text, ',')) {
    // At most one split: a third number stays with the second, which is then not a number.
    const std::pair<absl::string_view, absl::string_view> numbers =
        absl::StrSplit(each, absl::MaxSplits(':', 1));
    DynamicDimension found;
    if (!absl::SimpleAtoi(numbers.first, &found.operand) ||
        !absl::SimpleAtoi(numbers.second, &found.dimension) || found.operand < 0 ||
        found.dimension < 0) {
      return absl::InternalError(absl::StrCat(
          "Expected dynamic dimensions as 'operand:dimension,...'; got '", text, "'."));
    }
    dynamic.push_back(found);
  }
  return dynamic;
}

}  // namespace tf_tpu_ext
