#include "cc/profile/profiler.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tsl/profiler/lib/profiler_factory.h"
#include "tsl/profiler/lib/profiler_interface.h"
#include "tsl/profiler/protobuf/profiler_options.pb.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::ProfileOptions;

class ProfilerTest : public ::testing::Test {
 protected:
  // Never destroyed: what was registered refers to them.
  inline static auto* const kRecorder = new ProfileRecorder;
  inline static auto* const kMachine = new Machine;

  static void SetUpTestSuite() {
    tsl::profiler::ClearRegisteredProfilersForTest();
    RegisterProfiler(kRecorder, kMachine);
  }

  static std::vector<std::unique_ptr<tsl::profiler::ProfilerInterface>> Create(
      int level, ProfileOptions::DeviceType device) {
    ProfileOptions options;
    options.set_device_tracer_level(level);
    options.set_device_type(device);
    return tsl::profiler::CreateProfilers(options);
  }
};

TEST_F(ProfilerTest, RecordsWhileAProfileIsTaken) {
  auto profilers = Create(1, ProfileOptions::UNSPECIFIED);
  ASSERT_EQ(profilers.size(), 1);
  EXPECT_FALSE(kRecorder->active());
  ASSERT_TRUE(profilers[0]->Start().ok());
  EXPECT_TRUE(kRecorder->active());
  ASSERT_TRUE(profilers[0]->Stop().ok());
  EXPECT_FALSE(kRecorder->active());
  tensorflow::profiler::XSpace space;
  ASSERT_TRUE(profilers[0]->CollectData(&space).ok());
  EXPECT_EQ(space.planes_size(), 0);
}

TEST_F(ProfilerTest, AProfileThatIsDroppedRecordsNoLonger) {
  auto profilers = Create(1, ProfileOptions::TPU);
  ASSERT_EQ(profilers.size(), 1);
  ASSERT_TRUE(profilers[0]->Start().ok());
  profilers.clear();
  EXPECT_FALSE(kRecorder->active());
}

TEST_F(ProfilerTest, ThereIsNoneForProfilesOfOtherDevices) {
  EXPECT_TRUE(Create(0, ProfileOptions::UNSPECIFIED).empty());
  EXPECT_TRUE(Create(1, ProfileOptions::CPU).empty());
  EXPECT_TRUE(Create(1, ProfileOptions::GPU).empty());
}

}  // namespace
}  // namespace tf_tpu_ext
