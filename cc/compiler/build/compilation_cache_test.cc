#include "cc/compiler/build/compilation_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tensorflow/c/c_api.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/path.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Env;

constexpr int64_t kMaxBytes = 1 << 20;
// Of an entry of 1,000 bytes, with its magic and fingerprint.
constexpr int64_t kMaxEntry = 1060;

class CompilationCacheTest : public ::testing::Test {
 protected:
  CompilationCacheTest()
      : folder_(tensorflow::io::JoinPath(::testing::TempDir(), "a/compilation_cache")) {
    int64_t files, folders;
    Env::Default()->DeleteRecursively(folder_, &files, &folders).IgnoreError();
  }

  std::shared_ptr<CompilationCache> Open() {
    auto cache = CompilationCache::Open(folder_);
    EXPECT_TRUE(cache.ok()) << cache.status();
    return *cache;
  }

  std::vector<std::string> Files() {
    std::vector<std::string> names;
    EXPECT_TRUE(Env::Default()->GetChildren(folder_, &names).ok());
    return names;
  }

  std::string OnlyFile() {
    const std::vector<std::string> names = Files();
    EXPECT_EQ(names.size(), 1);
    return absl::StrCat(folder_, "/", names[0]);
  }

  // What is in the folder was last used an hour earlier.
  void LetTimePass() {
    for (const std::string& name : Files()) {
      const std::string path = absl::StrCat(folder_, "/", name);
      struct stat found;
      ASSERT_EQ(stat(path.c_str(), &found), 0);
      found.st_mtim.tv_sec -= 3600;
      const timespec times[] = {found.st_atim, found.st_mtim};
      ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
    }
  }

  const std::string folder_;
};

TEST_F(CompilationCacheTest, KeepsCodeByItsKey) {
  const auto cache = Open();
  EXPECT_TRUE(Files().empty());
  EXPECT_TRUE(absl::IsNotFound(cache->Read("key").status()));
  const std::string code("machine\0code", 12);
  ASSERT_TRUE(cache->Write("key", code, kMaxBytes).ok());
  ASSERT_TRUE(cache->Write("other", "", kMaxBytes).ok());
  EXPECT_EQ(Files().size(), 2);
  EXPECT_EQ(*Open()->Read("key"), code);
  EXPECT_EQ(*cache->Read("other"), "");
  EXPECT_TRUE(absl::IsNotFound(cache->Read("keys").status()));
}

TEST_F(CompilationCacheTest, RefusesAFolderThatOthersMayWriteTo) {
  Open();
  for (const mode_t mode : {0775, 0757, 0777, 01777}) {
    ASSERT_EQ(chmod(folder_.c_str(), mode), 0);
    const absl::Status status = CompilationCache::Open(folder_).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), absl::StrFormat("mode %04o", mode))) << status;
  }
  ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
  Open();
}

TEST_F(CompilationCacheTest, RefusesAFolderThatOthersMayReplace) {
  Open();
  const std::string parent(tensorflow::io::Dirname(folder_));
  ASSERT_EQ(chmod(parent.c_str(), 0777), 0);
  const absl::Status status = CompilationCache::Open(folder_).status();
  EXPECT_TRUE(absl::StrContains(status.message(), absl::StrCat(parent, " has mode 0777")))
      << status;
  ASSERT_EQ(chmod(parent.c_str(), 01777), 0);
  Open();
}

TEST_F(CompilationCacheTest, ReadsNoFileThatOthersMayWriteTo) {
  const auto cache = Open();
  ASSERT_TRUE(cache->Write("key", "code", kMaxBytes).ok());
  ASSERT_EQ(chmod(OnlyFile().c_str(), 0666), 0);
  EXPECT_TRUE(absl::IsPermissionDenied(cache->Read("key").status()));
  ASSERT_TRUE(cache->Write("key", "new code", kMaxBytes).ok());
  EXPECT_EQ(*cache->Read("key"), "new code");
}

TEST_F(CompilationCacheTest, ReadsWhatItWroteUnderAnyUmask) {
  const mode_t before = umask(0);
  const auto cache = Open();
  const absl::Status written = cache->Write("key", "code", kMaxBytes);
  umask(before);
  ASSERT_TRUE(written.ok()) << written;
  EXPECT_EQ(*cache->Read("key"), "code");
}

TEST_F(CompilationCacheTest, ReplacesAnEntry) {
  const auto cache = Open();
  ASSERT_TRUE(cache->Write("key", "old", kMaxBytes).ok());
  ASSERT_TRUE(cache->Write("key", "new", kMaxBytes).ok());
  EXPECT_EQ(*cache->Read("key"), "new");
  EXPECT_EQ(Files().size(), 1);
}

TEST_F(CompilationCacheTest, TellsDamage) {
  const auto cache = Open();
  ASSERT_TRUE(cache->Write("key", "machine code", kMaxBytes).ok());
  const std::string path = OnlyFile();
  std::string whole;
  ASSERT_TRUE(tensorflow::ReadFileToString(Env::Default(), path, &whole).ok());
  for (size_t size = 0; size < whole.size(); ++size) {
    ASSERT_TRUE(tensorflow::WriteStringToFile(Env::Default(), path, whole.substr(0, size)).ok());
    EXPECT_TRUE(absl::IsDataLoss(cache->Read("key").status())) << size;
  }
  for (size_t place = 0; place < whole.size(); ++place) {
    std::string damaged = whole;
    damaged[place] ^= 1;
    ASSERT_TRUE(tensorflow::WriteStringToFile(Env::Default(), path, damaged).ok());
    EXPECT_TRUE(absl::IsDataLoss(cache->Read("key").status())) << place;
  }
}

TEST_F(CompilationCacheTest, RemovesTheLeastRecentlyUsed) {
  const auto cache = Open();
  const std::string code(1000, 'c');
  for (const char* key : {"a", "b", "c"}) {
    ASSERT_TRUE(cache->Write(key, code, 3 * kMaxEntry).ok());
    LetTimePass();
  }
  EXPECT_EQ(Files().size(), 3);
  EXPECT_TRUE(cache->Read("a").ok());
  LetTimePass();
  // Too much: nine tenths of the limit have room for two.
  ASSERT_TRUE(cache->Write("d", code, 3 * kMaxEntry).ok());
  EXPECT_EQ(*cache->Read("a"), code);
  EXPECT_TRUE(absl::IsNotFound(cache->Read("b").status()));
  EXPECT_TRUE(absl::IsNotFound(cache->Read("c").status()));
  EXPECT_EQ(*cache->Read("d"), code);
}

TEST_F(CompilationCacheTest, RemovesWhatProcessesLeftUnfinished) {
  const auto cache = Open();
  const std::string part = absl::StrCat(folder_, "/name.xla.1.2.part");
  ASSERT_TRUE(
      tensorflow::WriteStringToFile(Env::Default(), part, std::string(kMaxBytes, 'c')).ok());
  LetTimePass();
  ASSERT_TRUE(cache->Write("key", "code", kMaxBytes).ok());
  EXPECT_EQ(Files().size(), 1);
  EXPECT_EQ(*cache->Read("key"), "code");
}

TEST_F(CompilationCacheTest, LeavesWhatIsNotItsOwn) {
  const auto cache = Open();
  const std::string other = absl::StrCat(folder_, "/notes.txt");
  ASSERT_TRUE(
      tensorflow::WriteStringToFile(Env::Default(), other, std::string(kMaxBytes, 'n')).ok());
  ASSERT_TRUE(cache->Write("key", "code", kMaxBytes).ok());
  EXPECT_EQ(Files().size(), 2);
}

TEST_F(CompilationCacheTest, OpensTheFolderWhenItIsUsed) {
  const auto cache = CompilationCache::OpenLater(folder_);
  EXPECT_FALSE(Env::Default()->FileExists(folder_).ok());
  EXPECT_TRUE(absl::IsNotFound(cache->Read("key").status()));
  ASSERT_TRUE(cache->Write("key", "code", kMaxBytes).ok());
  EXPECT_EQ(*cache->Read("key"), "code");
}

TEST_F(CompilationCacheTest, StaysEmptyInAFolderThatOthersMayWriteTo) {
  Open();
  ASSERT_EQ(chmod(folder_.c_str(), 0777), 0);
  const auto cache = CompilationCache::OpenLater(folder_);
  EXPECT_TRUE(cache->Write("key", "code", kMaxBytes).ok());
  EXPECT_TRUE(absl::IsNotFound(cache->Read("key").status()));
  EXPECT_TRUE(Files().empty());
}

TEST_F(CompilationCacheTest, RefusesAFolderThatCannotBe) {
  const auto cache = Open();
  const std::string file = absl::StrCat(folder_, "/file");
  ASSERT_TRUE(tensorflow::WriteStringToFile(Env::Default(), file, "").ok());
  const absl::Status status = CompilationCache::Open(absl::StrCat(file, "/in")).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_TRUE(absl::StrContains(status.message(), file)) << status;
}

TEST(CompilationEnvironmentTest, NamesTensorFlowAndTheLibrary) {
  const std::string& environment = CompilationEnvironment();
  EXPECT_TRUE(absl::StartsWith(environment, TF_Version()));
  EXPECT_EQ(environment, CompilationEnvironment());
  EXPECT_GT(environment.size(), 40);
}

}  // namespace
}  // namespace tf_tpu_ext
