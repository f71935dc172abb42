#ifndef TF_TPU_EXT_CC_PROGRAM_PADDED_ARGUMENT_H_
#define TF_TPU_EXT_CC_PROGRAM_PADDED_ARGUMENT_H_

#include <utility>
#include <vector>

namespace tf_tpu_ext {

// An argument that was padded on the host.
struct PaddedArgument {
  int argument = 0;
  // Dimensions, each with the number of the argument that holds its true size.
  std::vector<std::pair<int, int>> sizes;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROGRAM_PADDED_ARGUMENT_H_
