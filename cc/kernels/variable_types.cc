#include "cc/kernels/variable_types.h"

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cc/ops/host_update_ops.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/mutex.h"

namespace tf_tpu_ext {

using tensorflow::DataType;
using tensorflow::Var;

DataType UpdatedType(const tensorflow::OpKernelConstruction& construction) {
  DataType type = tensorflow::DT_INVALID;
  std::string op = construction.def().op();
  if (std::string original = OriginalOfHostUpdate(op); !original.empty()) op = std::move(original);
  // For a random number generator, the type is that of the numbers, not of the state.
  if (op == "AssignVariableOp" || absl::StartsWith(op, "Stateful")) return type;
  for (const char* attribute : {"T", "dtype"}) {
    if (tensorflow::TryGetNodeAttr(construction.def(), attribute, &type)) break;
  }
  return type;
}

absl::Status CheckVariableTypes(tensorflow::OpKernelContext* context, DataType type) {
  if (type == tensorflow::DT_INVALID) return absl::OkStatus();
  for (int input = 0; input < context->num_inputs(); ++input) {
    if (context->input_dtype(input) != tensorflow::DT_RESOURCE) continue;
    tensorflow::ResourceHandle handle;
    TF_RETURN_IF_ERROR(tensorflow::HandleFromInput(context, input, &handle));
    tensorflow::core::RefCountPtr<Var> variable;
    const absl::Status found = LookupResource(context, handle, &variable);
    if (absl::IsNotFound(found)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "Op ", context->op_kernel().name(), " (", context->op_kernel().type_string(),
          ") updates variable '", handle.name(), "', which does not exist on ",
          context->device()->name(), " or is uninitialized. Run its initializer there first. (",
          found.message(), ")"));
    }
    // The kernel reports anything else that is wrong with the handle.
    if (!found.ok()) continue;
    tensorflow::tf_shared_lock lock(*variable->mu());
    if (variable->is_initialized && variable->tensor()->dtype() != type) {
      return absl::InvalidArgumentError(absl::StrCat(
          "Op ", context->op_kernel().name(), " (", context->op_kernel().type_string(),
          ") updates variables of type ", tensorflow::DataTypeString(type), "; variable '",
          handle.name(), "' is of ", tensorflow::DataTypeString(variable->tensor()->dtype()),
          ". Give the op the variable's type."));
    }
  }
  return absl::OkStatus();
}

}  // namespace tf_tpu_ext
