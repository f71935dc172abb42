#include "cc/base/machine.h"

#include <array>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

using Shape = std::array<int, 4>;

TEST(MeshShapeTest, KnownMachines) {
  EXPECT_EQ(MeshShape(1), (Shape{1, 1, 1, 1}));
  EXPECT_EQ(MeshShape(2), (Shape{1, 1, 1, 2}));
  EXPECT_EQ(MeshShape(4), (Shape{2, 1, 1, 2}));
  EXPECT_EQ(MeshShape(6), (Shape{3, 1, 1, 2}));
  // A Cloud TPU host: 2x2 chips of two cores.
  EXPECT_EQ(MeshShape(8), (Shape{2, 2, 1, 2}));
  EXPECT_EQ(MeshShape(32), (Shape{4, 4, 1, 2}));
  EXPECT_EQ(MeshShape(64), (Shape{8, 4, 1, 2}));
  EXPECT_EQ(MeshShape(9), (Shape{3, 3, 1, 1}));
  EXPECT_EQ(MeshShape(7), (Shape{7, 1, 1, 1}));
  EXPECT_EQ(MeshShape(kMaxCores), (Shape{32, 16, 1, 2}));
}

TEST(MeshShapeTest, HoldsAllCoresAsSquareAsItCan) {
  for (int cores = 1; cores <= 64; ++cores) {
    const Shape shape = MeshShape(cores);
    EXPECT_EQ(shape[0] * shape[1] * shape[2] * shape[3], cores);
    EXPECT_EQ(shape[2], 1);
    EXPECT_EQ(shape[3], cores % 2 == 0 ? 2 : 1) << cores;
    EXPECT_GE(shape[0], shape[1]) << cores;
    for (int y = shape[1] + 1; y * y <= shape[0] * shape[1]; ++y) {
      EXPECT_NE(shape[0] * shape[1] % y, 0) << cores << " cores could be " << y << " high";
    }
  }
}

TEST(CoreCoordinatesTest, EveryPlaceOnceAndInTheBridgesOrder) {
  for (int cores = 1; cores <= 64; ++cores) {
    const Shape shape = MeshShape(cores);
    const std::vector<Shape> coordinates = CoreCoordinates(MeshShape(cores));
    ASSERT_EQ(coordinates.size(), cores);
    EXPECT_EQ(std::set<Shape>(coordinates.begin(), coordinates.end()).size(), cores);
    for (int core = 0; core < cores; ++core) {
      const auto [x, y, z, within] = coordinates[core];
      for (int axis = 0; axis < 4; ++axis) {
        EXPECT_GE(coordinates[core][axis], 0);
        EXPECT_LT(coordinates[core][axis], shape[axis]) << cores << " cores, core " << core;
      }
      EXPECT_EQ(within + shape[3] * (x + shape[0] * (y + shape[1] * z)), core);
    }
  }
}

TEST(CoreCoordinatesTest, NeighboursShareAChip) {
  const std::vector<Shape> coordinates = CoreCoordinates(MeshShape(8));
  EXPECT_EQ(coordinates[0], (Shape{0, 0, 0, 0}));
  EXPECT_EQ(coordinates[1], (Shape{0, 0, 0, 1}));
  EXPECT_EQ(coordinates[2], (Shape{1, 0, 0, 0}));
  EXPECT_EQ(coordinates[7], (Shape{1, 1, 0, 1}));
}

TEST(ValidateCoresTest, Limits) {
  for (int cores : {1, 2, 3, 8, 64, 63, kMaxCores}) EXPECT_TRUE(ValidateCores(cores).ok()) << cores;
  for (int64_t cores : {int64_t{0}, int64_t{-1}, int64_t{kMaxCores + 1}, int64_t{1} << 40}) {
    const absl::Status status = ValidateCores(cores);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << cores;
    EXPECT_TRUE(absl::StrContains(status.message(), std::to_string(cores))) << status;
  }
}

// One test, because the settings freeze for good.
TEST(MachineOptionsTest, ChangeUntilDevicesExist) {
  Machine machine;
  EXPECT_EQ(machine.options().cores, kDefaultCores);
  EXPECT_EQ(machine.options().wait_limit, absl::Minutes(30));
  EXPECT_EQ(machine.options().host_limit, absl::Minutes(1));
  EXPECT_TRUE(machine.options().local_devices);

  MachineOptions options;
  options.cores = 5;
  options.wait_limit = absl::Seconds(3);
  ASSERT_TRUE(machine.SetOptions(options).ok());
  EXPECT_EQ(machine.options().cores, 5);
  EXPECT_EQ(machine.options().wait_limit, absl::Seconds(3));

  MachineOptions wrong = options;
  wrong.cores = 0;
  EXPECT_TRUE(absl::IsInvalidArgument(machine.SetOptions(wrong)));
  wrong = options;
  for (absl::Duration limit : {absl::ZeroDuration(), absl::Seconds(-1)}) {
    wrong.wait_limit = limit;
    EXPECT_TRUE(absl::IsInvalidArgument(machine.SetOptions(wrong))) << limit;
  }
  wrong = options;
  for (int sparse_cores : {-1, 3, 5}) {
    wrong.sparse_cores = sparse_cores;
    EXPECT_TRUE(absl::IsInvalidArgument(machine.SetOptions(wrong))) << sparse_cores;
  }
  EXPECT_EQ(machine.options().cores, 5);
  EXPECT_EQ(machine.options().wait_limit, absl::Seconds(3));
  EXPECT_EQ(SparseCoresOf(options), 4);
  options.sparse_cores = 2;
  EXPECT_EQ(SparseCoresOf(options), 2);

  machine.MarkDevicesCreated();
  // Allowed, because the devices don't depend on it.
  options.wait_limit = absl::Seconds(4);
  EXPECT_TRUE(machine.SetOptions(options).ok());
  EXPECT_EQ(machine.options().wait_limit, absl::Seconds(4));
  wrong = options;
  wrong.cores = 6;
  const absl::Status status = machine.SetOptions(wrong);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  // Python recognizes this error by these words.
  EXPECT_TRUE(absl::StrContains(status.message(), "already created")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "cores=6")) << status;
  wrong = options;
  wrong.local_devices = false;
  EXPECT_TRUE(absl::IsFailedPrecondition(machine.SetOptions(wrong)));
  EXPECT_EQ(machine.options().cores, 5);
}

}  // namespace
}  // namespace tf_tpu_ext
