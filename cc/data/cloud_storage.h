// Replaces Google Cloud Storage for programs that run without it: by a folder, or by an error.
#ifndef TF_TPU_EXT_CC_DATA_CLOUD_STORAGE_H_
#define TF_TPU_EXT_CC_DATA_CLOUD_STORAGE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "xla/tsl/platform/file_system.h"

namespace tf_tpu_ext {

// The local path of `gs://bucket/name`: `folder/bucket/name`. Returns an error if the path leads
// out of its bucket, or if `folder` is empty, which refuses all such paths.
absl::StatusOr<std::string> LocalPath(absl::string_view folder, absl::string_view path);

// A file system that keeps the files of gs:// paths in the folder of the last call of
// MapCloudStorage. As in the cloud, a folder exists as soon as something is put into it.
std::unique_ptr<tsl::FileSystem> MakeCloudStorage();

// Makes TensorFlow use the folder for gs:// paths, or refuse them if `folder` is empty. A later
// call changes the folder. Fails if TensorFlow has a file system of its own for them, which it does
// unless its libraries were loaded with TF_USE_MODULAR_FILESYSTEM.
absl::Status MapCloudStorage(const std::string& folder);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_DATA_CLOUD_STORAGE_H_
