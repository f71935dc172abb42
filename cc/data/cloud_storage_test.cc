#include "cc/data/cloud_storage.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tensorflow/core/platform/env.h"
#include "xla/tsl/lib/io/random_inputstream.h"

namespace tf_tpu_ext {
namespace {

TEST(LocalPathTest, IsInTheFolder) {
  EXPECT_EQ(*LocalPath("/data", "gs://bucket//a/./b"), "/data/bucket/a/b");
  EXPECT_EQ(*LocalPath("/data/", "gs://bucket/a/"), "/data/bucket/a");
  EXPECT_EQ(*LocalPath("/data", "gs://"), "/data");
}

TEST(LocalPathTest, TellsWhatItDoesNotReach) {
  EXPECT_TRUE(absl::IsInvalidArgument(LocalPath("/data", "gs://bucket/../../etc").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(LocalPath("/data", "/local").status()));
  const absl::Status refused = LocalPath("", "gs://bucket/a").status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_NE(refused.message().find("gs://bucket/a is in Google Cloud Storage"), std::string::npos);
}

class CloudStorageTest : public ::testing::Test {
 protected:
  CloudStorageTest() {
    std::string folder = absl::StrCat(::testing::TempDir(), "/cloud_storage_XXXXXX");
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    MapTo(folder_);
  }

  ~CloudStorageTest() override {
    int64_t files, folders;
    tensorflow::Env::Default()->DeleteRecursively(folder_, &files, &folders).IgnoreError();
  }

  // TensorFlow's own file system for gs:// was registered first, but the folder is set all the
  // same.
  static void MapTo(const std::string& folder) { MapCloudStorage(folder).IgnoreError(); }

  absl::Status Write(const std::string& name, const std::string& text) {
    std::unique_ptr<tsl::WritableFile> file;
    absl::Status status = storage_->NewWritableFile(name, nullptr, &file);
    if (status.ok()) status = file->Append(text);
    if (status.ok()) status = file->Close();
    return status;
  }

  absl::Status Append(const std::string& name, const std::string& text) {
    std::unique_ptr<tsl::WritableFile> file;
    absl::Status status = storage_->NewAppendableFile(name, nullptr, &file);
    if (status.ok()) status = file->Append(text);
    if (status.ok()) status = file->Close();
    return status;
  }

  std::string ReadLocal(const std::string& name) const {
    std::string text;
    const absl::Status status =
        tensorflow::ReadFileToString(tensorflow::Env::Default(), folder_ + "/" + name, &text);
    return status.ok() ? text : status.ToString();
  }

  std::string folder_;
  const std::unique_ptr<tsl::FileSystem> storage_ = MakeCloudStorage();
};

TEST_F(CloudStorageTest, FilesAreInTheFolder) {
  ASSERT_TRUE(Write("gs://bucket/deep/down/file", "text").ok());
  EXPECT_EQ(ReadLocal("bucket/deep/down/file"), "text");
  ASSERT_TRUE(Append("gs://bucket/deep/down/file", " and more").ok());
  EXPECT_EQ(ReadLocal("bucket/deep/down/file"), "text and more");
  ASSERT_TRUE(Append("gs://bucket/log/new", "first").ok());
  EXPECT_EQ(ReadLocal("bucket/log/new"), "first");
  EXPECT_TRUE(storage_->FileExists("gs://bucket/deep/down/file", nullptr).ok());
  EXPECT_TRUE(absl::IsNotFound(storage_->FileExists("gs://bucket/none", nullptr)));
  uint64_t size = 0;
  ASSERT_TRUE(storage_->GetFileSize("gs://bucket/deep/down/file", nullptr, &size).ok());
  EXPECT_EQ(size, 13);
  tsl::FileStatistics statistics;
  ASSERT_TRUE(storage_->Stat("gs://bucket/deep/down/file", nullptr, &statistics).ok());
  EXPECT_EQ(statistics.length, 13);
  EXPECT_FALSE(statistics.is_directory);
}

TEST_F(CloudStorageTest, MakesFoldersWithTheirBucket) {
  ASSERT_TRUE(storage_->RecursivelyCreateDir("gs://fresh/deep/down", nullptr).ok());
  EXPECT_TRUE(storage_->IsDirectory("gs://fresh/deep/down", nullptr).ok());
  EXPECT_TRUE(storage_->RecursivelyCreateDir("gs://fresh/deep", nullptr).ok());
  EXPECT_TRUE(storage_->RecursivelyCreateDir("gs://bucket", nullptr).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(storage_->RecursivelyCreateDir("gs://a/../b", nullptr)));
}

TEST_F(CloudStorageTest, ReadsWhatIsThere) {
  ASSERT_TRUE(Write("gs://bucket/file", "0123456789").ok());
  std::unique_ptr<tsl::RandomAccessFile> file;
  ASSERT_TRUE(storage_->NewRandomAccessFile("gs://bucket/file", nullptr, &file).ok());
  tsl::io::RandomAccessInputStream stream(file.get());
  ASSERT_TRUE(stream.Seek(3).ok());
  tsl::tstring text;
  ASSERT_TRUE(stream.ReadNBytes(4, &text).ok());
  EXPECT_EQ(text, "3456");
  std::unique_ptr<tsl::ReadOnlyMemoryRegion> region;
  ASSERT_TRUE(storage_->NewReadOnlyMemoryRegionFromFile("gs://bucket/file", nullptr, &region).ok());
  EXPECT_EQ(region->length(), 10);
  EXPECT_TRUE(absl::IsNotFound(storage_->NewRandomAccessFile("gs://bucket/no", nullptr, &file)));
}

TEST_F(CloudStorageTest, MovesCopiesAndDeletes) {
  ASSERT_TRUE(Write("gs://bucket/a", "text").ok());
  ASSERT_TRUE(storage_->RenameFile("gs://bucket/a", "gs://other/new/b", nullptr).ok());
  EXPECT_EQ(ReadLocal("other/new/b"), "text");
  ASSERT_TRUE(storage_->CopyFile("gs://other/new/b", "gs://bucket/c/d", nullptr).ok());
  EXPECT_EQ(ReadLocal("bucket/c/d"), "text");
  ASSERT_TRUE(storage_->DeleteFile("gs://bucket/c/d", nullptr).ok());
  EXPECT_TRUE(absl::IsNotFound(storage_->FileExists("gs://bucket/c/d", nullptr)));
  ASSERT_TRUE(storage_->DeleteDir("gs://bucket/c", nullptr).ok());
  EXPECT_TRUE(absl::IsNotFound(storage_->FileExists("gs://bucket/c", nullptr)));
  ASSERT_TRUE(storage_->CreateDir("gs://bucket/x/y", nullptr).ok());
  EXPECT_TRUE(storage_->IsDirectory("gs://bucket/x/y", nullptr).ok());
}

TEST_F(CloudStorageTest, ListsByNamesOfTheFolder) {
  for (const char* name : {"gs://bucket/a1", "gs://bucket/a2", "gs://bucket/b"}) {
    ASSERT_TRUE(Write(name, "").ok());
  }
  std::vector<std::string> children;
  ASSERT_TRUE(storage_->GetChildren("gs://bucket", nullptr, &children).ok());
  std::sort(children.begin(), children.end());
  EXPECT_EQ(children, (std::vector<std::string>{"a1", "a2", "b"}));
}

TEST_F(CloudStorageTest, MatchesPatternsByNamesOfTheCloud) {
  for (const char* name : {"gs://bucket/a1", "gs://bucket/a2", "gs://bucket/deep/a3"}) {
    ASSERT_TRUE(Write(name, "").ok());
  }
  std::vector<std::string> matching;
  ASSERT_TRUE(storage_->GetMatchingPaths("gs://bucket/a*", nullptr, &matching).ok());
  std::sort(matching.begin(), matching.end());
  EXPECT_EQ(matching, (std::vector<std::string>{"gs://bucket/a1", "gs://bucket/a2"}));
  ASSERT_TRUE(storage_->GetMatchingPaths("gs://bucket/none*", nullptr, &matching).ok());
  EXPECT_TRUE(matching.empty());
}

TEST_F(CloudStorageTest, WhatIsNotThereIsNotFound) {
  const std::string missing = "gs://bucket/missing";
  tsl::FileStatistics statistics;
  uint64_t size;
  std::vector<std::string> names;
  for (const absl::Status& status :
       {storage_->Stat(missing, nullptr, &statistics), storage_->DeleteFile(missing, nullptr),
        storage_->GetFileSize(missing, nullptr, &size), storage_->DeleteDir(missing, nullptr),
        storage_->GetChildren(missing, nullptr, &names),
        storage_->RenameFile(missing, "gs://bucket/new", nullptr),
        storage_->CopyFile(missing, "gs://bucket/new", nullptr)}) {
    EXPECT_TRUE(absl::IsNotFound(status)) << status;
  }
  EXPECT_TRUE(absl::IsNotFound(storage_->FileExists("gs://bucket/new", nullptr)));
}

TEST_F(CloudStorageTest, ALaterFolderTakesThePlaceOfTheFirst) {
  ASSERT_TRUE(Write("gs://bucket/file", "first").ok());
  MapTo(folder_ + "/second");
  EXPECT_TRUE(absl::IsNotFound(storage_->FileExists("gs://bucket/file", nullptr)));
  ASSERT_TRUE(Write("gs://bucket/file", "second").ok());
  EXPECT_EQ(ReadLocal("second/bucket/file"), "second");
  EXPECT_EQ(ReadLocal("bucket/file"), "first");
}

TEST_F(CloudStorageTest, RefusesWhatLeavesItsBucket) {
  EXPECT_TRUE(absl::IsInvalidArgument(Write("gs://bucket/../../escaped", "text")));
  EXPECT_TRUE(
      absl::IsInvalidArgument(storage_->RenameFile("gs://bucket/a", "gs://bucket/../b", nullptr)));
}

TEST_F(CloudStorageTest, WithoutAFolderEverythingIsRefused) {
  MapTo("");
  std::unique_ptr<tsl::RandomAccessFile> file;
  std::unique_ptr<tsl::ReadOnlyMemoryRegion> region;
  std::vector<std::string> names;
  tsl::FileStatistics statistics;
  uint64_t size;
  const std::string name = "gs://bucket/file";
  for (const absl::Status& status :
       {Write(name, ""), Append(name, ""), storage_->NewRandomAccessFile(name, nullptr, &file),
        storage_->NewReadOnlyMemoryRegionFromFile(name, nullptr, &region),
        storage_->FileExists(name, nullptr), storage_->GetChildren(name, nullptr, &names),
        storage_->GetMatchingPaths(name, nullptr, &names),
        storage_->Stat(name, nullptr, &statistics), storage_->DeleteFile(name, nullptr),
        storage_->CreateDir(name, nullptr), storage_->DeleteDir(name, nullptr),
        storage_->GetFileSize(name, nullptr, &size), storage_->RenameFile(name, name, nullptr),
        storage_->CopyFile(name, name, nullptr)}) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "tf-tpu run --gs FOLDER")) << status;
  }
}

TEST_F(CloudStorageTest, TensorFlowsOwnFileSystemStays) {
  // It was registered when TensorFlow's library was loaded, before this test could register
  // another.
  EXPECT_TRUE(absl::IsAlreadyExists(MapCloudStorage(folder_))) << MapCloudStorage(folder_);
}

}  // namespace
}  // namespace tf_tpu_ext
