#include "cc/device/topology.h"

#include <array>

#include "cc/base/machine.h"

namespace tf_tpu_ext {

tensorflow::tpu::TopologyProto MakeTopology(int cores) {
  tensorflow::tpu::TopologyProto topology;
  for (int extent : MeshShape(cores)) topology.add_mesh_shape(extent);
  topology.set_num_tasks(1);
  topology.set_num_tpu_devices_per_task(cores);
  for (const std::array<int, 4>& coordinates : CoreCoordinates(cores)) {
    for (int coordinate : coordinates) topology.add_device_coordinates(coordinate);
  }
  return topology;
}

}  // namespace tf_tpu_ext
