#include "cc/base/fault_points.h"

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

class FaultPointsTest : public testing::Test {
 protected:
  ~FaultPointsTest() override { DisarmFaults(); }

  static FaultCounts Of(FaultPoint point) { return CountFaults()[static_cast<int>(point)]; }
};

TEST_F(FaultPointsTest, NothingFailsUnlessArmed) {
  const FaultCounts before = Of(FaultPoint::kAllocation);
  EXPECT_TRUE(FaultAt(FaultPoint::kAllocation).ok());
  EXPECT_EQ(Of(FaultPoint::kAllocation).reached, before.reached);
}

TEST_F(FaultPointsTest, FailsOnceAfterOthers) {
  const FaultCounts before = Of(FaultPoint::kTransfer);
  ASSERT_TRUE(ArmFault("transfer", 2, absl::ZeroDuration()).ok());
  EXPECT_TRUE(FaultAt(FaultPoint::kTransfer).ok());
  EXPECT_TRUE(FaultAt(FaultPoint::kHostCall).ok());
  EXPECT_TRUE(FaultAt(FaultPoint::kTransfer).ok());
  const absl::Status failed = FaultAt(FaultPoint::kTransfer);
  EXPECT_EQ(failed.code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(absl::StrContains(failed.message(), "transfer"));
  EXPECT_TRUE(FaultAt(FaultPoint::kTransfer).ok());
  const FaultCounts after = Of(FaultPoint::kTransfer);
  EXPECT_EQ(after.reached - before.reached, 3);
  EXPECT_EQ(after.failed - before.failed, 1);
  EXPECT_EQ(after.stalled - before.stalled, 0);
}

TEST_F(FaultPointsTest, FaultsForTheSameCallerComeOneAfterTheOther) {
  ASSERT_TRUE(ArmFault("allocation", 0, absl::ZeroDuration()).ok());
  ASSERT_TRUE(ArmFault("allocation", 0, absl::ZeroDuration()).ok());
  EXPECT_EQ(FaultAt(FaultPoint::kAllocation).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(FaultAt(FaultPoint::kAllocation).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(FaultAt(FaultPoint::kAllocation).ok());
}

TEST_F(FaultPointsTest, Stalls) {
  const FaultCounts before = Of(FaultPoint::kCollective);
  ASSERT_TRUE(ArmFault("collective", 0, absl::Milliseconds(20)).ok());
  const absl::Time start = absl::Now();
  EXPECT_TRUE(FaultAt(FaultPoint::kCollective).ok());
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(20));
  EXPECT_EQ(Of(FaultPoint::kCollective).stalled - before.stalled, 1);
}

TEST_F(FaultPointsTest, DisarmedIsOff) {
  ASSERT_TRUE(ArmFault("launch", 0, absl::ZeroDuration()).ok());
  DisarmFaults();
  EXPECT_TRUE(FaultAt(FaultPoint::kLaunch).ok());
}

TEST_F(FaultPointsTest, UnknownNames) {
  EXPECT_TRUE(absl::StrContains(ArmFault("network", 0, absl::ZeroDuration()).message(),
                                "expected one of allocation, compilation, launch"));
  EXPECT_TRUE(
      absl::StrContains(ArmFault("launch", -1, absl::ZeroDuration()).message(), "0 or more"));
}

}  // namespace
}  // namespace tf_tpu_ext
