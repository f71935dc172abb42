#ifndef TF_TPU_EXT_CC_PASSES_COMPILE_MARKS_H_
#define TF_TPU_EXT_CC_PASSES_COMPILE_MARKS_H_

#include "absl/status/status.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/graph/graph.h"

namespace tf_tpu_ext {

// Removes the mark of `tf.function(jit_compile=False)` from calls that are part of a TPU
// computation, in `graph` and in the functions of `library`. The computation is compiled as a
// whole, so the mark has no effect there, but the bridge treats it as a contradiction.
absl::Status DropCompileMarks(tensorflow::Graph* graph,
                              tensorflow::FunctionLibraryDefinition* library);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PASSES_COMPILE_MARKS_H_
