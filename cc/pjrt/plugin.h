// A PJRT plugin: a shared library that compiles for, and drives, devices that XLA itself does not
// know. libtpu.so is one.
#ifndef TF_TPU_EXT_CC_PJRT_PLUGIN_H_
#define TF_TPU_EXT_CC_PJRT_PLUGIN_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "xla/pjrt/c/pjrt_c_api.h"

namespace tf_tpu_ext {

// A loaded plugin. Plugins stay in the process until it ends: they start threads.
class PjrtPlugin {
 public:
  // Loads the shared library at `path` and initializes it; FailedPrecondition if it is too old.
  static absl::StatusOr<PjrtPlugin> Load(const std::string& path);

  // For a plugin that is part of the process. `name` is for messages.
  static absl::StatusOr<PjrtPlugin> Initialize(const PJRT_Api* api, const std::string& name);

  const PJRT_Api& api() const { return *api_; }

  // The status of an error that a function of the plugin has returned, which it frees; OK for null.
  absl::Status Take(PJRT_Error* error) const;

 private:
  explicit PjrtPlugin(const PJRT_Api* api) : api_(api) {}

  const PJRT_Api* api_;
};

// The argument of a function of the C API, with the size by which the plugin knows its version.
#define TF_TPU_EXT_PJRT_ARGS(type, name) \
  type name{};                           \
  (name).struct_size = type##_STRUCT_SIZE

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PJRT_PLUGIN_H_
