#include "cc/base/pod_shape.h"

#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

TEST(PodShapeTest, OneMachineNumbersItsCoresOnce) {
  const PodShape shape;
  EXPECT_FALSE(shape.is_pod());
  for (const Core core : {Core(0), Core(7), Core(1023)}) {
    EXPECT_EQ(shape.HostOf(core), Host(0));
    EXPECT_TRUE(shape.IsHere(core));
    EXPECT_EQ(shape.NumberHere(core), core);
    EXPECT_EQ(shape.NumberInPod(core), core);
  }
}

// A number of cores that only pods use must not affect a single machine.
TEST(PodShapeTest, OneMachineIsNoPodWhateverItsNumberOfCores) {
  PodShape shape;
  shape.cores_per_host = 2;
  EXPECT_FALSE(shape.is_pod());
  EXPECT_EQ(shape.HostOf(Core(5)), Host(0));
  EXPECT_EQ(shape.NumberInPod(Core(5)), Core(5));
}

TEST(PodShapeTest, TheCoresOfAHostFollowThoseOfTheHostBefore) {
  PodShape shape;
  shape.hosts = 3;
  shape.cores_per_host = 2;
  for (int host = 0; host < shape.hosts; ++host) {
    shape.host = Host(host);
    EXPECT_TRUE(shape.is_pod());
    for (int core = 0; core < 6; ++core) {
      EXPECT_EQ(shape.HostOf(Core(core)), Host(core / 2)) << core;
      EXPECT_EQ(shape.IsHere(Core(core)), core / 2 == host) << core << " on " << host;
    }
    for (int here = 0; here < 2; ++here) {
      const Core in_pod = shape.NumberInPod(Core(here));
      EXPECT_EQ(in_pod, Core(2 * host + here));
      EXPECT_EQ(shape.NumberHere(in_pod), Core(here));
      EXPECT_TRUE(shape.IsHere(in_pod));
    }
  }
}

}  // namespace
}  // namespace tf_tpu_ext
