#ifndef TF_TPU_EXT_CC_PASSES_DYNAMIC_SHAPE_MARKS_H_
#define TF_TPU_EXT_CC_PASSES_DYNAMIC_SHAPE_MARKS_H_

#include "absl/status/status.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/graph/graph.h"

namespace tf_tpu_ext {

// Replaces TPUAnnotateTensorsWithDynamicShape with IdentityN, in `graph` and in the functions of
// `library`. The bridge would make the marked arguments of a program dynamic, with a size that a
// TPU keeps alongside the data. Here they are whole buffers; their readers know how far to read.
absl::Status DropDynamicShapeMarks(tensorflow::Graph* graph,
                                   tensorflow::FunctionLibraryDefinition* library);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PASSES_DYNAMIC_SHAPE_MARKS_H_
