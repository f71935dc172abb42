#ifndef TF_TPU_EXT_CC_DEVICE_TOPOLOGY_H_
#define TF_TPU_EXT_CC_DEVICE_TOPOLOGY_H_

#include "cc/base/machine.h"
#include "tensorflow/core/protobuf/tpu/topology.pb.h"

namespace tf_tpu_ext {

// The topology of `machines` machines of that shape, as TensorFlow's graphs carry it. The machines
// form a row along the last axis in use, so that the cores of each follow those of the one before
// it.
tensorflow::tpu::TopologyProto MakeTopology(const Mesh& machine_shape, int machines = 1);

// Records the number of SparseCores per core in the topology, unless it is 0.
void AddSparseCores(int sparse_cores, tensorflow::tpu::TopologyProto* topology);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_DEVICE_TOPOLOGY_H_
