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

// Moves the nodes of cores that do no more than launch programs to the host of the cores: executes,
// the arguments that are brought to them, out of variables and iterators as well, and the loops and
// branches in which that happens. TensorFlow starts an executor for each device of a function,
// which costs more than a short step, and in a loop they tell each other of every round. It needs
// none for a core without nodes.
//
// The nodes of `graph`, the body of a function, have been assigned to devices. A core that has
// other nodes as well, a result of the function for one, keeps them all, and so does a core that
// `devices`, where it is not null, says to be of another process. An execute that has moved
// carries its core in the attribute kCoreDevice (cc/ops/op_names.h).
absl::Status LaunchFromHost(const CompositeDevices& composite_devices,
                            const tensorflow::DeviceSet* devices, tensorflow::Graph* graph);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PASSES_LAUNCH_FROM_HOST_H_
