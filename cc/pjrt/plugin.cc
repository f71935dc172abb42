#include "cc/pjrt/plugin.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "xla/tsl/platform/errors.h"

namespace tf_tpu_ext {

absl::StatusOr<PjrtPlugin> PjrtPlugin::Load(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): glibc keeps the message for each thread.
    return absl::NotFoundError(absl::StrCat(path, " can't be loaded: ", dlerror()));
  }
  void* const symbol = dlsym(library, "GetPjrtApi");
  if (symbol == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is no PJRT plugin: it has no function GetPjrtApi."));
  }
  return Initialize(reinterpret_cast<const PJRT_Api* (*)()>(symbol)(), path);
}

absl::StatusOr<PjrtPlugin> PjrtPlugin::Initialize(const PJRT_Api* api, const std::string& name) {
  // Plugins accept arguments from older callers, not from newer ones.
  const PJRT_Api_Version& version = api->pjrt_api_version;
  if (version.major_version != PJRT_API_MAJOR || version.minor_version < PJRT_API_MINOR) {
    return absl::FailedPreconditionError(absl::StrCat(
        name, " has version ", version.major_version, ".", version.minor_version,
        " of the PJRT interface; expected ", PJRT_API_MAJOR, ".", PJRT_API_MINOR, " or newer."));
  }
  PjrtPlugin plugin(api);
  TF_TPU_EXT_PJRT_ARGS(PJRT_Plugin_Initialize_Args, args);
  TF_RETURN_IF_ERROR(plugin.Take(api->PJRT_Plugin_Initialize(&args)));
  return plugin;
}

absl::Status PjrtPlugin::Take(PJRT_Error* error) const {
  if (error == nullptr) return absl::OkStatus();
  TF_TPU_EXT_PJRT_ARGS(PJRT_Error_Message_Args, message);
  message.error = error;
  api_->PJRT_Error_Message(&message);
  TF_TPU_EXT_PJRT_ARGS(PJRT_Error_GetCode_Args, code);
  code.error = error;
  // If the plugin can't give the error's code, that is an internal error of the plugin.
  if (Take(api_->PJRT_Error_GetCode(&code)) != absl::OkStatus()) {
    code.code = PJRT_Error_Code_INTERNAL;
  }
  absl::Status status(static_cast<absl::StatusCode>(code.code),
                      absl::string_view(message.message, message.message_size));
  TF_TPU_EXT_PJRT_ARGS(PJRT_Error_Destroy_Args, destroy);
  destroy.error = error;
  api_->PJRT_Error_Destroy(&destroy);
  return status;
}

}  // namespace tf_tpu_ext
