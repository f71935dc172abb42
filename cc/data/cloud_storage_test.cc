#include "cc/data/cloud_storage.h"

#include "gtest/gtest.h"

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

}  // namespace
}  // namespace tf_tpu_ext
