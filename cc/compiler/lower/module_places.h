// What the locations of a module say about its ops.
#ifndef TF_TPU_EXT_CC_COMPILER_LOWER_MODULE_PLACES_H_
#define TF_TPU_EXT_CC_COMPILER_LOWER_MODULE_PLACES_H_

#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "cc/base/user_lines.h"
#include "cc/compiler/lower/module_locations.h"

namespace tf_tpu_ext {

struct ModulePlace {
  // The op's name when the module becomes a graph. Empty if the location has no name.
  std::string name;
  // The innermost line in the user's code.
  SourceLine line;
  // Whether the location is an op's own, with its type, rather than a stack frame.
  bool of_op = false;
};

class ModulePlaces {
 public:
  explicit ModulePlaces(const ModuleLocations& locations) : locations_(locations) {}

  // Parses a location in MLIR's syntax.
  ModulePlace At(absl::string_view location);

 private:
  // Each parses and removes its part from the front of `text`.
  ModulePlace Take(absl::string_view* text);
  ModulePlace TakeNamed(absl::string_view* text);
  ModulePlace TakeCall(absl::string_view* text);
  ModulePlace TakeFused(absl::string_view* text);

  const ModuleLocations& locations_;
  absl::flat_hash_map<absl::string_view, ModulePlace> known_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_LOWER_MODULE_PLACES_H_
