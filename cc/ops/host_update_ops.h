#ifndef TF_TPU_EXT_CC_OPS_HOST_UPDATE_OPS_H_
#define TF_TPU_EXT_CC_OPS_HOST_UPDATE_OPS_H_

#include <string>

namespace tf_tpu_ext {

// Registers an override, under a name of our own, for each of TensorFlow's ops that update
// variables. The bridge splits the originals into a read, a sum and a write, which would lose
// another replica's update in between, and keeps only one of all replicas' writes. Only the first
// call does anything.
void RegisterHostUpdates();

// Whether this TensorFlow op changes a variable in one step and has an override of ours.
bool IsHostUpdate(const std::string& op);

// The name of an op's override, and the original of an override: empty if the op overrides none.
std::string HostUpdateOverride(const std::string& op);
std::string OriginalOfHostUpdate(const std::string& op);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_OPS_HOST_UPDATE_OPS_H_
