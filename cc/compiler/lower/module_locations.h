// The locations of ops in the text of a module.
#ifndef TF_TPU_EXT_CC_COMPILER_LOWER_MODULE_LOCATIONS_H_
#define TF_TPU_EXT_CC_COMPILER_LOWER_MODULE_LOCATIONS_H_

#include <cstddef>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace tf_tpu_ext {

// Keeps a reference to the module's text.
class ModuleLocations {
 public:
  explicit ModuleLocations(absl::string_view module);

  // The location that an alias such as "#loc3" stands for, or empty if there is none.
  absl::string_view Named(absl::string_view alias) const;

  // The alias at the start of `text`, or empty if there is none.
  static absl::string_view AliasAt(absl::string_view text);

  // The lines of the module that contain ops.
  const std::vector<absl::string_view>& ops() const { return ops_; }

  // The location at the end of an op's line, which may be an alias, or empty if there is none.
  static absl::string_view OfOp(absl::string_view line);

 private:
  absl::flat_hash_map<absl::string_view, absl::string_view> aliases_;
  std::vector<absl::string_view> ops_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_LOWER_MODULE_LOCATIONS_H_
