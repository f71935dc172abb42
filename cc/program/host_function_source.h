#ifndef TF_TPU_EXT_CC_PROGRAM_HOST_FUNCTION_SOURCE_H_
#define TF_TPU_EXT_CC_PROGRAM_HOST_FUNCTION_SOURCE_H_

#include <string>

namespace tf_tpu_ext {

// A host function that a program calls, as the compiler found it.
struct HostFunctionSource {
  std::string name;
  // A serialized FunctionDefLibrary with the function and all that it calls.
  std::string library;
  // The Python line that made the cluster, if known.
  std::string source;
  // The cluster's name in its computation.
  std::string cluster;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROGRAM_HOST_FUNCTION_SOURCE_H_
