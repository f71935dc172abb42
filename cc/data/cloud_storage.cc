#include "cc/data/cloud_storage.h"

#include <atomic>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/errors.h"
#include "xla/tsl/platform/default/posix_file_system.h"

namespace tf_tpu_ext {
namespace {

using tsl::TransactionToken;

constexpr absl::string_view kScheme = "gs://";

// The current folder. The file system lives as long as the process.
class Folder {
 public:
  static Folder& Get() {
    static auto* const folder = new Folder;
    return *folder;
  }

  void Set(const std::string& path) {
    absl::MutexLock lock(&mutex_);
    path_ = path;
  }

  absl::StatusOr<std::string> Local(const std::string& path) {
    absl::MutexLock lock(&mutex_);
    return LocalPath(path_, path);
  }

 private:
  absl::Mutex mutex_;
  std::string path_ ABSL_GUARDED_BY(mutex_);
};

// Each operation checks the name first, because TranslateName, which the base class calls, can't
// refuse one.
class CloudStorage : public tsl::PosixFileSystem {
 public:
  TF_USE_FILESYSTEM_METHODS_WITH_NO_TRANSACTION_SUPPORT;

  std::string TranslateName(const std::string& name) const override {
    return Folder::Get().Local(name).value_or("");
  }

  absl::Status NewRandomAccessFile(const std::string& name, TransactionToken* token,
                                   std::unique_ptr<tsl::RandomAccessFile>* result) override {
    TF_RETURN_IF_ERROR(Check(name));
    return PosixFileSystem::NewRandomAccessFile(name, token, result);
  }

  absl::Status NewWritableFile(const std::string& name, TransactionToken* token,
                               std::unique_ptr<tsl::WritableFile>* result) override {
    TF_RETURN_IF_ERROR(MakeFolderOf(name));
    return PosixFileSystem::NewWritableFile(name, token, result);
  }

  absl::Status NewAppendableFile(const std::string& name, TransactionToken* token,
                                 std::unique_ptr<tsl::WritableFile>* result) override {
    TF_RETURN_IF_ERROR(MakeFolderOf(name));
    return PosixFileSystem::NewAppendableFile(name, token, result);
  }

  absl::Status NewReadOnlyMemoryRegionFromFile(
      const std::string& name, TransactionToken* token,
      std::unique_ptr<tsl::ReadOnlyMemoryRegion>* result) override {
    TF_RETURN_IF_ERROR(Check(name));
    return PosixFileSystem::NewReadOnlyMemoryRegionFromFile(name, token, result);
  }

  absl::Status FileExists(const std::string& name, TransactionToken* token) override {
    TF_RETURN_IF_ERROR(Check(name));
    return PosixFileSystem::FileExists(name, token);
  }

  absl::Status GetChildren(const std::string& name, TransactionToken* token,
                           std::vector<std::string>* result) override {
    TF_RETURN_IF_ERROR(Check(name));
    return PosixFileSystem::GetChildren(name, token, result);
  }

  absl::Status GetMatchingPaths(const std::string& pattern, TransactionToken* token,
                                std::vector<std::string>* results) override {
    TF_RETURN_IF_ERROR(Check(pattern));
    return PosixFileSystem::GetMatchingPaths(pattern, token, results);
  }

  absl::Status Stat(const std::string& name, TransactionToken* token,
                    tsl::FileStatistics* statistics) override {
    TF_RETURN_IF_ERROR(Check(name));
    return PosixFileSystem::Stat(name, token, statistics);
  }

  absl::Status DeleteFile(const std::string& name, TransactionToken* token) override {
    TF_RETURN_IF_ERROR(Check(name));
    return PosixFileSystem::DeleteFile(name, token);
  }

  absl::Status CreateDir(const std::string& name, TransactionToken* token) override {
    TF_RETURN_IF_ERROR(MakeFolderOf(name));
    return PosixFileSystem::CreateDir(name, token);
  }

  // The base class searches for an existing parent, endlessly if not even the bucket exists.
  absl::Status RecursivelyCreateDir(const std::string& name, TransactionToken* token) override {
    TF_RETURN_IF_ERROR(Check(name));
    return tensorflow::Env::Default()->RecursivelyCreateDir(Folder::Get().Local(name).value_or(""));
  }

  absl::Status DeleteDir(const std::string& name, TransactionToken* token) override {
    TF_RETURN_IF_ERROR(Check(name));
    return PosixFileSystem::DeleteDir(name, token);
  }

  absl::Status GetFileSize(const std::string& name, TransactionToken* token,
                           uint64_t* size) override {
    TF_RETURN_IF_ERROR(Check(name));
    return PosixFileSystem::GetFileSize(name, token, size);
  }

  absl::Status RenameFile(const std::string& source, const std::string& target,
                          TransactionToken* token) override {
    TF_RETURN_IF_ERROR(Check(source));
    TF_RETURN_IF_ERROR(MakeFolderOf(target));
    return PosixFileSystem::RenameFile(source, target, token);
  }

  absl::Status CopyFile(const std::string& source, const std::string& target,
                        TransactionToken* token) override {
    TF_RETURN_IF_ERROR(Check(source));
    TF_RETURN_IF_ERROR(MakeFolderOf(target));
    return PosixFileSystem::CopyFile(source, target, token);
  }

 private:
  static absl::Status Check(const std::string& name) {
    absl::Status status = Folder::Get().Local(name).status();
    // Some of TensorFlow's Python code mistakes any error for a missing file.
    if (static std::atomic_flag told; !status.ok() && !told.test_and_set()) {
      LOG(ERROR) << status.message();
    }
    return status;
  }

  static absl::Status MakeFolderOf(const std::string& name) {
    TF_RETURN_IF_ERROR(Check(name));
    const std::string local = Folder::Get().Local(name).value_or("");
    return tensorflow::Env::Default()->RecursivelyCreateDir(
        local.substr(0, local.find_last_of('/')));
  }
};

}  // namespace

absl::StatusOr<std::string> LocalPath(absl::string_view folder, absl::string_view path) {
  absl::string_view rest = path;
  if (!absl::ConsumePrefix(&rest, kScheme)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " does not begin with ", kScheme, "."));
  }
  if (folder.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        " is in Google Cloud Storage, which tf-tpu run does not reach. Expected a local path. Copy "
        "the data to FOLDER/<bucket>/<name> and run: tf-tpu run --gs FOLDER ..."));
  }
  std::string local(absl::StripSuffix(folder, "/"));
  for (absl::string_view part : absl::StrSplit(rest, '/')) {
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " leads out of its bucket. Expected a path without '..'."));
    }
    absl::StrAppend(&local, "/", part);
  }
  return local;
}

std::unique_ptr<tsl::FileSystem> MakeCloudStorage() { return std::make_unique<CloudStorage>(); }

absl::Status MapCloudStorage(const std::string& folder) {
  Folder::Get().Set(folder);
  static const auto* const registered =
      new absl::Status(tensorflow::Env::Default()->RegisterFileSystem("gs", MakeCloudStorage()));
  return *registered;
}

}  // namespace tf_tpu_ext
