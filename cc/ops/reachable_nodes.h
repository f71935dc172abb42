#ifndef TF_TPU_EXT_CC_OPS_REACHABLE_NODES_H_
#define TF_TPU_EXT_CC_OPS_REACHABLE_NODES_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_def.pb.h"

namespace tf_tpu_ext {

// The functions that a node's attributes name, in the order of these attributes' names.
std::vector<std::string> FunctionsCalledBy(const tensorflow::NodeDef& node);

// Whether any node of the function, or of a function that it calls, satisfies the predicate. A
// function that the library lacks has no nodes.
bool AnyReachableNode(const std::string& function,
                      const tensorflow::FunctionLibraryDefinition& library,
                      absl::FunctionRef<bool(const tensorflow::NodeDef&)> predicate);

// The same for the functions that a node calls.
bool AnyNodeCalledBy(const tensorflow::NodeDef& node,
                     const tensorflow::FunctionLibraryDefinition& library,
                     absl::FunctionRef<bool(const tensorflow::NodeDef&)> predicate);

// Whether any node that the function reaches is marked for outside compilation.
bool HoldsOutsideCompilation(const std::string& function,
                             const tensorflow::FunctionLibraryDefinition& library);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_OPS_REACHABLE_NODES_H_
