#ifndef TF_TPU_EXT_CC_OPS_HOST_UPDATE_OPS_H_
#define TF_TPU_EXT_CC_OPS_HOST_UPDATE_OPS_H_

#include <string>

namespace tf_tpu_ext {

// Registers a twin under a name of our own for each of TensorFlow's updates of variables: the
// bridge takes the originals apart into a read, a sum and a write, between which another replica's
// update would be lost.
void RegisterHostUpdates();

// Whether the op of TensorFlow changes a variable in one step, and has a twin of ours.
bool IsHostUpdate(const std::string& op);

// The twin's name, and back: empty if it is none.
std::string HostUpdateTwin(const std::string& op);
std::string OriginalOfHostUpdate(const std::string& twin);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_OPS_HOST_UPDATE_OPS_H_
