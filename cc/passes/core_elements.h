// Lets programs take elements of distributed datasets from the host.
#ifndef TF_TPU_EXT_CC_PASSES_CORE_ELEMENTS_H_
#define TF_TPU_EXT_CC_PASSES_CORE_ELEMENTS_H_

#include "absl/status/status.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/graph/graph.h"

namespace tf_tpu_ext {

// In Python, an element is on the core that it is for (tf_tpu_ext/tpu/_dealt_iterator.py). Where it
// is an input of a computation, this gives the computation what was moved there, in the graph and
// in the library's functions, and drops moves that nothing else needs.
absl::Status TakeElementsFromHost(tensorflow::Graph* graph,
                                  tensorflow::FunctionLibraryDefinition* library);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PASSES_CORE_ELEMENTS_H_
