#include "cc/compiler/build/compilation_cache.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/log/log.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tensorflow/c/c_api.h"
#include "tensorflow/core/platform/cpu_info.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/fingerprint.h"
#include "tensorflow/core/platform/path.h"
#include "xla/tsl/platform/errors.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Env;

// The start of a file, followed by the fingerprint of the rest. A crash of the machine may leave a
// file with its name but not its contents, and XLA runs whatever machine code it is given.
constexpr absl::string_view kMagic = "tf_tpu_ext compilation 1\n";

constexpr char kSuffix[] = ".xla";
// Of a file that is being written.
constexpr char kPartSuffix[] = ".part";

std::string Fingerprint(absl::string_view text) {
  const auto fingerprint = tensorflow::Fingerprint128({text.data(), text.size()});
  return absl::StrFormat("%016x%016x", fingerprint.high64, fingerprint.low64);
}

// Writes to a unique name, so that the complete file is renamed into place.
absl::Status WriteWhole(const std::string& path, absl::string_view contents) {
  // Distinguishes this process's threads. The process ID distinguishes processes.
  static std::atomic<int64_t> next{0};
  const std::string part = absl::StrCat(path, ".", getpid(), ".", next.fetch_add(1), kPartSuffix);
  absl::Status status = tensorflow::WriteStringToFile(Env::Default(), part, contents);
  // Regardless of the umask, because Read refuses files that others may write to. Not every file
  // system has modes.
  chmod(part.c_str(), 0644);
  if (status.ok()) status = Env::Default()->RenameFile(part, path);
  if (!status.ok()) Env::Default()->DeleteFile(part).IgnoreError();
  return status;
}

// Whether users other than the owner may write to it.
bool OthersWrite(const struct stat& found) { return (found.st_mode & (S_IWGRP | S_IWOTH)) != 0; }

bool IsOfThisUser(const struct stat& found) {
  return found.st_uid == geteuid() || found.st_uid == 0;
}

// Returns an error if another user could put code into the folder for this process to run, either
// by writing to it or by replacing it with another folder. Only local folders have modes.
absl::Status CheckNobodyElseWrites(const std::string& folder) {
  struct stat found;
  if (stat(folder.c_str(), &found) != 0) return absl::OkStatus();
  if (!IsOfThisUser(found) || OthersWrite(found)) {
    return absl::PermissionDeniedError(absl::StrFormat(
        "it belongs to user %d and has mode %04o; this process, of user %d, runs the code in it, "
        "so that nobody else may write to it. Use a folder of your own, after `chmod go-w`.",
        found.st_uid, found.st_mode & 07777, geteuid()));
  }
  const std::unique_ptr<char, decltype(&std::free)> path(realpath(folder.c_str(), nullptr),
                                                         &std::free);
  if (path == nullptr) return absl::OkStatus();
  std::string parent = path.get();
  while (parent != "/" && !parent.empty()) {
    parent = std::string(tensorflow::io::Dirname(parent));
    const bool is_there = stat(parent.c_str(), &found) == 0;
    // If the sticky bit is set, as in /tmp, only its owner may rename the folder.
    if (is_there && OthersWrite(found) && (found.st_mode & S_ISVTX) == 0) {
      return absl::PermissionDeniedError(absl::StrFormat(
          "others may put another folder in its place: %s has mode %04o. Use a folder of your own.",
          parent, found.st_mode & 07777));
    }
  }
  return absl::OkStatus();
}

// The lines that distinguish kinds of processors. Empty if the system does not say. XLA compiles
// for the processor's instruction set, and the folder may be on a shared disk.
std::string DescribeProcessor() {
  std::ifstream file("/proc/cpuinfo");
  std::string description;
  for (std::string line; std::getline(file, line) && !line.empty();) {
    for (const char* prefix : {"vendor_id", "cpu family", "model", "flags", "Features", "CPU "}) {
      if (absl::StartsWith(line, prefix)) absl::StrAppend(&description, line, "\n");
    }
  }
  return description;
}

// By contents, because a library under development keeps its version.
std::string DescribeLibrary() {
  Dl_info info;
  std::string contents;
  if (dladdr(reinterpret_cast<const void*>(&CompilationEnvironment), &info) == 0 ||
      !tensorflow::ReadFileToString(Env::Default(), info.dli_fname, &contents).ok()) {
    return "";
  }
  return Fingerprint(contents);
}

absl::Status MakeUsable(const std::string& folder) {
  absl::Status status = Env::Default()->RecursivelyCreateDir(folder);
  const std::string probe = tensorflow::io::JoinPath(folder, absl::StrCat(getpid(), ".probe"));
  if (status.ok()) status = WriteWhole(probe, "");
  if (status.ok()) status = Env::Default()->DeleteFile(probe);
  if (!status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("The folder for compiled programs can't be written to: ", status.message(),
                     ". Received: '", folder, "'. Name a folder that this process may write to."));
  }
  status = CheckNobodyElseWrites(folder);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat("The folder for compiled programs is not safe: ",
                                                 status.message(), " Received: '", folder, "'."));
}

// A file in the folder.
struct Entry {
  int64_t used_nsec;  // when it was last read or written
  int64_t bytes;
  std::string path;
};

std::vector<Entry> EntriesOf(const std::string& folder) {
  std::vector<std::string> names;
  Env::Default()->GetChildren(folder, &names).IgnoreError();
  std::vector<Entry> entries;
  for (const std::string& name : names) {
    // Partial files left by a process that ended early count, too.
    if (!absl::EndsWith(name, kSuffix) && !absl::EndsWith(name, kPartSuffix)) continue;
    Entry entry;
    entry.path = tensorflow::io::JoinPath(folder, name);
    tensorflow::FileStatistics found;
    // Another process may have removed it.
    if (!Env::Default()->Stat(entry.path, &found).ok()) continue;
    entry.used_nsec = found.mtime_nsec;
    entry.bytes = found.length;
    entries.push_back(std::move(entry));
  }
  return entries;
}

// If the folder holds more than `max_bytes`, removes the least recently used entries until a tenth
// of the limit is free, so that this happens rarely. Returns how many bytes are left.
int64_t RemoveOldest(const std::string& folder, int64_t max_bytes) {
  std::vector<Entry> entries = EntriesOf(folder);
  int64_t total = 0;
  for (const Entry& entry : entries) total += entry.bytes;
  if (total <= max_bytes) return total;
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.used_nsec < b.used_nsec; });
  for (const Entry& entry : entries) {
    if (total <= max_bytes / 10 * 9) break;
    Env::Default()->DeleteFile(entry.path).IgnoreError();
    total -= entry.bytes;
  }
  return total;
}

}  // namespace

absl::StatusOr<std::shared_ptr<CompilationCache>> CompilationCache::Open(
    const std::string& folder) {
  TF_RETURN_IF_ERROR(MakeUsable(folder));
  std::shared_ptr<CompilationCache> cache = OpenLater(folder);
  absl::MutexLock lock(&cache->mutex_);
  cache->can_be_used_ = true;
  return cache;
}

std::shared_ptr<CompilationCache> CompilationCache::OpenLater(const std::string& folder) {
  return std::shared_ptr<CompilationCache>(new CompilationCache(folder));
}

bool CompilationCache::CanBeUsed() const {
  absl::MutexLock lock(&mutex_);
  if (!can_be_used_.has_value()) {
    const absl::Status usable = MakeUsable(folder_);
    if (!usable.ok()) LOG(INFO) << "There is no compilation cache: " << usable.message();
    can_be_used_ = usable.ok();
  }
  return *can_be_used_;
}

std::string CompilationCache::PathOf(absl::string_view key) const {
  return tensorflow::io::JoinPath(folder_, absl::StrCat(Fingerprint(key), kSuffix));
}

absl::StatusOr<std::string> CompilationCache::Read(absl::string_view key) const {
  const std::string path = PathOf(key);
  if (!CanBeUsed()) return absl::NotFoundError(path);
  // Others may have been able to write to the folder earlier.
  struct stat found;
  if (stat(path.c_str(), &found) == 0 && (!IsOfThisUser(found) || OthersWrite(found))) {
    return absl::PermissionDeniedError(absl::StrCat(
        "Another user may have written the compiled program in ", path, ". It will be replaced."));
  }
  std::string contents;
  TF_RETURN_IF_ERROR(tensorflow::ReadFileToString(Env::Default(), path, &contents));
  absl::string_view rest = contents;
  const size_t fingerprint_size = Fingerprint("").size();
  if (absl::ConsumePrefix(&rest, kMagic) && rest.size() >= fingerprint_size) {
    const absl::string_view code = rest.substr(fingerprint_size);
    if (rest.substr(0, fingerprint_size) == Fingerprint(code)) {
      // Marks the entry as used. This has no effect on files that are not on a local disk.
      utimensat(AT_FDCWD, path.c_str(), /*times=*/nullptr, /*flags=*/0);
      return std::string(code);
    }
  }
  return absl::DataLossError(
      absl::StrCat("The compiled program in ", path, " is damaged. It will be replaced."));
}

absl::Status CompilationCache::Write(absl::string_view key, absl::string_view code,
                                     int64_t max_bytes) const {
  if (!CanBeUsed()) return absl::OkStatus();
  TF_RETURN_IF_ERROR(WriteWhole(PathOf(key), absl::StrCat(kMagic, Fingerprint(code), code)));
  KeepBelow(max_bytes, code.size());
  return absl::OkStatus();
}

void CompilationCache::KeepBelow(int64_t max_bytes, int64_t written) const {
  absl::MutexLock lock(&mutex_);
  unwatched_ -= written;
  if (unwatched_ > 0) return;
  const int64_t left = max_bytes - RemoveOldest(folder_, max_bytes);
  // A fraction of what is left, because other processes write in the meantime.
  unwatched_ = left / 8;
}

const std::string& CompilationEnvironment() {
  static const auto* environment =
      new std::string(absl::StrCat(TF_Version(), "\n", DescribeLibrary(), "\n",
                                   tensorflow::port::MaxParallelism(), "\n", DescribeProcessor()));
  return *environment;
}

}  // namespace tf_tpu_ext
