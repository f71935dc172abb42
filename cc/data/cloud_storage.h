// Google Cloud Storage for programs that run without it: a folder in its place, or a refusal.
#ifndef TF_TPU_EXT_CC_DATA_CLOUD_STORAGE_H_
#define TF_TPU_EXT_CC_DATA_CLOUD_STORAGE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "xla/tsl/platform/file_system.h"

namespace tf_tpu_ext {

// The local path of `gs://bucket/name`: `folder/bucket/name`. An error where the path leads out of
// its bucket, or the folder is empty: then such paths are refused.
absl::StatusOr<std::string> LocalPath(absl::string_view folder, absl::string_view path);

// A file system of local files under names of gs://, in the folder of the last call of
// MapCloudStorage. As in the cloud, a folder is there once something is put into it.
std::unique_ptr<tsl::FileSystem> MakeCloudStorage();

// Makes TensorFlow take the files of gs:// from the folder, or refuse them if it is empty. A later
// call changes the folder. Fails if TensorFlow has a file system of its own for them, which it has
// unless its libraries were loaded with TF_USE_MODULAR_FILESYSTEM.
absl::Status MapCloudStorage(const std::string& folder);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_DATA_CLOUD_STORAGE_H_
