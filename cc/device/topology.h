#ifndef TF_TPU_EXT_CC_DEVICE_TOPOLOGY_H_
#define TF_TPU_EXT_CC_DEVICE_TOPOLOGY_H_

#include "cc/base/machine.h"
#include "tensorflow/core/protobuf/tpu/topology.pb.h"

namespace tf_tpu_ext {

// The topology of so many machines of that shape, as TensorFlow's graphs carry it. They stand in a
// row along the last axis of the mesh that is in use, so that the cores of each follow those of the
// one before it.
tensorflow::tpu::TopologyProto MakeTopology(const Mesh& machine_shape, int machines = 1);

// Says in the topology that each core has so many SparseCores; none are not mentioned.
void AddSparseCores(int sparse_cores, tensorflow::tpu::TopologyProto* topology);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_DEVICE_TOPOLOGY_H_
