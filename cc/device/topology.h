#ifndef TF_TPU_EXT_CC_DEVICE_TOPOLOGY_H_
#define TF_TPU_EXT_CC_DEVICE_TOPOLOGY_H_

#include "cc/base/machine.h"
#include "tensorflow/core/protobuf/tpu/topology.pb.h"

namespace tf_tpu_ext {

// The topology of a machine of that shape, as TensorFlow's graphs carry it.
tensorflow::tpu::TopologyProto MakeTopology(const Mesh& mesh_shape);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_DEVICE_TOPOLOGY_H_
