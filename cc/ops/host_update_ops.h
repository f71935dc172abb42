#ifndef TF_TPU_EXT_CC_OPS_HOST_UPDATE_OPS_H_
#define TF_TPU_EXT_CC_OPS_HOST_UPDATE_OPS_H_

#include <string>

namespace tf_tpu_ext {

// Whether the op of TensorFlow changes a variable in one step, and has a twin of ours.
bool IsHostUpdate(const std::string& op);

// The twin's name, and back: empty if it is none.
std::string HostUpdateTwin(const std::string& op);
std::string OriginalOfHostUpdate(const std::string& twin);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_OPS_HOST_UPDATE_OPS_H_
