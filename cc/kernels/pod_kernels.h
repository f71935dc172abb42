#ifndef TF_TPU_EXT_CC_KERNELS_POD_KERNELS_H_
#define TF_TPU_EXT_CC_KERNELS_POD_KERNELS_H_

#include <string>

namespace tf_tpu_ext {

// Sets the versions of the Python packages in this process, which workers report on request.
void SetVersions(const std::string& package, const std::string& tensorflow);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_KERNELS_POD_KERNELS_H_
