// PJRT plugins: shared libraries that compile for and drive devices that XLA itself does not know,
// such as libtpu.so.
#ifndef TF_TPU_EXT_CC_PJRT_PLUGIN_H_
#define TF_TPU_EXT_CC_PJRT_PLUGIN_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "xla/pjrt/c/pjrt_c_api.h"

namespace tf_tpu_ext {

// A loaded plugin. Plugins stay loaded until the process ends, because they start threads.
class PjrtPlugin {
 public:
  // Loads the shared library at `path` and initializes it; FailedPrecondition if it is too old.
  static absl::StatusOr<PjrtPlugin> Load(const std::string& path);

  // Initializes a plugin that is already in the process. `name` is for messages.
  static absl::StatusOr<PjrtPlugin> Initialize(const PJRT_Api* api, const std::string& name);

  const PJRT_Api& api() const { return *api_; }

  // The status of an error that a plugin function has returned; OK for null. Frees the error.
  absl::Status Take(PJRT_Error* error) const;

 private:
  explicit PjrtPlugin(const PJRT_Api* api) : api_(api) {}

  const PJRT_Api* api_;
};

// The argument of a C API function, with the size that tells the plugin its version.
#define TF_TPU_EXT_PJRT_ARGS(type, name) \
  type name{};                           \
  (name).struct_size = type##_STRUCT_SIZE

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PJRT_PLUGIN_H_
