#include "cc/device/topology.h"

#include <vector>

#include "cc/base/machine.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

Mesh ShapeOf(const tensorflow::tpu::TopologyProto& topology) {
  EXPECT_EQ(topology.mesh_shape_size(), 4);
  Mesh shape = {};
  for (int axis = 0; axis < 4; ++axis) shape[axis] = topology.mesh_shape(axis);
  return shape;
}

// The coordinates of the cores by number, those of the first machine first.
std::vector<Mesh> CoordinatesOf(const tensorflow::tpu::TopologyProto& topology) {
  std::vector<Mesh> cores(topology.device_coordinates_size() / 4);
  for (int i = 0; i < topology.device_coordinates_size(); ++i) {
    cores[i / 4][i % 4] = topology.device_coordinates(i);
  }
  return cores;
}

// Turns coordinates into a number as TensorFlow's bridge does.
int NumberOf(const Mesh& core, const Mesh& shape) {
  return ((core[2] * shape[1] + core[1]) * shape[0] + core[0]) * shape[3] + core[3];
}

TEST(MachinesTest, StandInARowAlongTheLastAxisInUse) {
  EXPECT_EQ(ShapeOf(MakeTopology({2, 2, 1, 2}, 3)), (Mesh{2, 6, 1, 2}));
  EXPECT_EQ(ShapeOf(MakeTopology({2, 2, 2, 1}, 3)), (Mesh{2, 2, 6, 1}));
  EXPECT_EQ(ShapeOf(MakeTopology({1, 1, 1, 2}, 2)), (Mesh{1, 2, 1, 2}));
  EXPECT_EQ(ShapeOf(MakeTopology({2, 3, 4, 1})), (Mesh{2, 3, 4, 1}));
}

TEST(MachinesTest, TheCoresOfEachFollowThoseOfTheOneBefore) {
  for (const Mesh& machine : {Mesh{1, 1, 1, 1}, Mesh{1, 1, 1, 2}, Mesh{4, 1, 1, 2},
                              Mesh{2, 3, 1, 2}, Mesh{2, 3, 4, 2}, Mesh{1, 1, 2, 1}}) {
    const int cores = machine[0] * machine[1] * machine[2] * machine[3];
    for (int machines : {1, 2, 3}) {
      const tensorflow::tpu::TopologyProto topology = MakeTopology(machine, machines);
      EXPECT_EQ(topology.num_tasks(), machines);
      EXPECT_EQ(topology.num_tpu_devices_per_task(), cores);
      const Mesh shape = ShapeOf(topology);
      const std::vector<Mesh> coordinates = CoordinatesOf(topology);
      ASSERT_EQ(coordinates.size(), machines * cores);
      for (int number = 0; number < machines * cores; ++number) {
        EXPECT_EQ(NumberOf(coordinates[number], shape), number) << machines << " machines";
        // A machine is a part of the mesh: its cores are arranged as they would be without the
        // others.
        Mesh within = coordinates[number];
        const int axis = machine[2] > 1 ? 2 : 1;
        EXPECT_EQ(within[axis] / machine[axis], number / cores);
        within[axis] %= machine[axis];
        EXPECT_EQ(NumberOf(within, machine), number % cores);
      }
    }
  }
}

TEST(SparseCoresTest, AreInTheTopologyIfThereAreAny) {
  tensorflow::tpu::TopologyProto topology = MakeTopology({1, 1, 1, 2});
  AddSparseCores(0, &topology);
  EXPECT_FALSE(topology.has_tpu_hardware_feature());
  AddSparseCores(2, &topology);
  EXPECT_EQ(topology.tpu_hardware_feature().embedding_feature(),
            tensorflow::tpu::TPUHardwareFeature::V2);
  EXPECT_EQ(topology.tpu_hardware_feature().num_embedding_devices_per_chip(), 2);
}

}  // namespace
}  // namespace tf_tpu_ext
