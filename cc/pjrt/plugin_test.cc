#include "cc/pjrt/plugin.h"

#include <string>

#include "cc/pjrt/pjrt_testing.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

TEST(PjrtPluginTest, FileThatIsNotThere) {
  const absl::Status status = PjrtPlugin::Load("/absent/libtpu.so").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(status.message().find("/absent/libtpu.so can't be loaded"), std::string::npos);
}

TEST(PjrtPluginTest, LibraryThatIsNoPlugin) {
  const absl::Status status = PjrtPlugin::Load("libm.so.6").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("no PJRT plugin"), std::string::npos) << status;
}

TEST(PjrtPluginTest, OldPlugin) {
  FakePlugin& fake = MakeFakePlugin();
  fake.api.pjrt_api_version.minor_version = PJRT_API_MINOR - 1;
  const absl::Status status = PjrtPlugin::Initialize(&fake.api, "libtpu.so").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("or newer"), std::string::npos) << status;
  fake.api.pjrt_api_version.minor_version = PJRT_API_MINOR + 30;
  EXPECT_TRUE(PjrtPlugin::Initialize(&fake.api, "libtpu.so").ok());
}

TEST(PjrtPluginTest, ErrorsAreTakenOnce) {
  FakePlugin& fake = MakeFakePlugin();
  const auto plugin = PjrtPlugin::Initialize(&fake.api, "libtpu.so");
  ASSERT_TRUE(plugin.ok());
  const absl::Status status = plugin->Take(FakeError("too much", PJRT_Error_Code_UNIMPLEMENTED));
  EXPECT_EQ(status, absl::UnimplementedError("too much"));
  EXPECT_EQ(fake.errors, 0);
  EXPECT_TRUE(plugin->Take(nullptr).ok());
}

}  // namespace
}  // namespace tf_tpu_ext
