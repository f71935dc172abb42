// What the locations of a module say of its ops.
#ifndef TF_TPU_EXT_CC_COMPILER_LOWER_MODULE_PLACES_H_
#define TF_TPU_EXT_CC_COMPILER_LOWER_MODULE_PLACES_H_

#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "cc/base/user_lines.h"
#include "cc/compiler/lower/module_locations.h"

namespace tf_tpu_ext {

struct ModulePlace {
  // What the op is called when the module becomes a graph; empty if the location has no name.
  std::string name;
  // The innermost line of the user's.
  SourceLine line;
  // Whether it is an op's own, with its type, rather than a frame of a stack.
  bool of_op = false;
};

class ModulePlaces {
 public:
  explicit ModulePlaces(const ModuleLocations& locations) : locations_(locations) {}

  // What a location in MLIR's syntax says.
  ModulePlace At(absl::string_view location);

 private:
  // Each takes its part from the front of `text`.
  ModulePlace Take(absl::string_view* text);
  ModulePlace TakeNamed(absl::string_view* text);
  ModulePlace TakeCall(absl::string_view* text);
  ModulePlace TakeFused(absl::string_view* text);

  const ModuleLocations& locations_;
  absl::flat_hash_map<absl::string_view, ModulePlace> known_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_LOWER_MODULE_PLACES_H_
