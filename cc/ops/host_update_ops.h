#ifndef TF_TPU_EXT_CC_OPS_HOST_UPDATE_OPS_H_
#define TF_TPU_EXT_CC_OPS_HOST_UPDATE_OPS_H_

#include <string>

namespace tf_tpu_ext {

// Registers an override under a name of our own for each of TensorFlow's updates of variables: the
// bridge takes the originals apart into a read, a sum and a write, between which another replica's
// update would be lost, and keeps one write of all replicas. Only the first call does anything.
void RegisterHostUpdates();

// Whether the op of TensorFlow changes a variable in one step, and has an override of ours.
bool IsHostUpdate(const std::string& op);

// The override's name, and back: empty if the op overrides none.
std::string HostUpdateOverride(const std::string& op);
std::string OriginalOfHostUpdate(const std::string& op);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_OPS_HOST_UPDATE_OPS_H_
