#ifndef TF_TPU_EXT_CC_PASSES_LAUNCH_FROM_HOST_H_
#define TF_TPU_EXT_CC_PASSES_LAUNCH_FROM_HOST_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "tensorflow/core/common_runtime/device_set.h"
#include "tensorflow/core/graph/graph.h"

namespace tf_tpu_ext {

// The devices that a composite device stands for, by its name.
using CompositeDevices = absl::flat_hash_map<std::string, std::vector<std::string>>;

// Moves the nodes of cores that only launch programs to the host of the cores: execute ops, the
// arguments that they get (also from variables and iterators), and the loops and branches around
// them. TensorFlow starts an executor for each device of a function, which costs more than a short
// step, and in a loop the executors notify each other of every iteration. A core without nodes
// needs no executor.
//
// The nodes of `graph`, a function's body, must have been assigned to devices. A core that has
// other nodes too, such as a result of the function, keeps them all. So does a core that, according
// to `devices` if it is not null, belongs to another process. An execute op that has moved names
// its core in the attribute kCoreDevice (cc/ops/op_names.h).
absl::Status LaunchFromHost(const CompositeDevices& composite_devices,
                            const tensorflow::DeviceSet* devices, tensorflow::Graph* graph);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PASSES_LAUNCH_FROM_HOST_H_
