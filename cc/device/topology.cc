#include "cc/device/topology.h"

#include <vector>

namespace tf_tpu_ext {

tensorflow::tpu::TopologyProto MakeTopology(const Mesh& machine_shape, int machines) {
  tensorflow::tpu::TopologyProto topology;
  Mesh mesh_shape = machine_shape;
  mesh_shape[machine_shape[2] > 1 ? 2 : 1] *= machines;
  for (int extent : mesh_shape) topology.add_mesh_shape(extent);
  const std::vector<Mesh> cores = CoreCoordinates(mesh_shape);
  topology.set_num_tasks(machines);
  topology.set_num_tpu_devices_per_task(static_cast<int>(cores.size()) / machines);
  for (const Mesh& coordinates : cores) {
    for (int coordinate : coordinates) topology.add_device_coordinates(coordinate);
  }
  return topology;
}

void AddSparseCores(int sparse_cores, tensorflow::tpu::TopologyProto* topology) {
  if (sparse_cores == 0) return;
  auto* const feature = topology->mutable_tpu_hardware_feature();
  feature->set_embedding_feature(tensorflow::tpu::TPUHardwareFeature::V2);
  feature->set_num_embedding_devices_per_chip(sparse_cores);
}

}  // namespace tf_tpu_ext
