// TPUExecute and TPUExecuteAndUpdateVariables.
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cc/base/core_numbers.h"
#include "cc/base/process.h"
#include "cc/device/virtual_device.h"
#include "cc/kernels/core_resource.h"
#include "cc/ops/op_names.h"
#include "cc/program/compilation_record.h"
#include "cc/program/program_key.h"
#include "cc/program/value_numbers.h"
#include "cc/runtime/join_launch.h"
#include "cc/runtime/launch_table.h"
#include "cc/runtime/pod_programs.h"
#include "cc/runtime/program_cache.h"
#include "cc/runtime/step_transfers.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/statusor.h"
#include "xla/tsl/platform/status.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::ResourceHandle;
using tensorflow::Tensor;
using tensorflow::Var;

class ExecuteOp : public AsyncOpKernel {
 public:
  explicit ExecuteOp(OpKernelConstruction* construction)
      : AsyncOpKernel(construction), core_device_(construction->device()->name()) {
    if (construction->HasAttr(kCoreDevice)) {
      OP_REQUIRES_OK(construction, construction->GetAttr(kCoreDevice, &core_device_));
    }
    const std::optional<int> core = CoreOfDevice(core_device_);
    OP_REQUIRES(
        construction, core.has_value(),
        absl::InvalidArgumentError(absl::StrCat(
            name(), " must be placed on a core, such as /device:TPU:0. It has: ", core_device_)));
    core_ = Core(*core);
    num_results_ = construction->num_outputs();
    if (type_string() != "TPUExecuteAndUpdateVariables") return;
    OP_REQUIRES_OK(construction,
                   construction->GetAttr("device_var_reads_indices", &variable_arguments_));
    OP_REQUIRES_OK(construction,
                   construction->GetAttr("device_var_updates_indices", &variable_outputs_));
    OP_REQUIRES(construction, variable_arguments_.size() == variable_outputs_.size(),
                absl::InvalidArgumentError(absl::StrCat(
                    name(), " reads ", variable_arguments_.size(), " variables and updates ",
                    variable_outputs_.size(), "; the numbers must be equal.")));
    OP_REQUIRES_OK(construction, CheckVariableIndices(*construction));
  }

  // It only brings the core to the launch, so one thread can do that for all cores.
  bool IsExpensive() override { return false; }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    absl::StatusOr<ProgramKey> key = DecodeProgramKey(context->input(context->num_inputs() - 1));
    // The compile op reports the error; repeated by every core, it would only get longer.
    OP_REQUIRES_OK_ASYNC(context, tsl::StatusGroup::MakeDerived(key.status()), done);
    absl::Status status = Join(context, *key, done);
    if (status.ok()) return;
    // The other cores of the step get the cause, not a cancellation.
    Process::Get().launches->Reject(key->launch_id, status);
    const auto found = FindProgram(*key);
    if (found.ok() && found->program->compiled().takes.any()) {
      const CompiledProgram& compiled = found->program->compiled();
      Process::Get().transfers->DropQueued(compiled.takes, compiled.cores.values(),
                                           context->step_id(), status);
    }
    context->SetStatus(status);
    done();
  }

 private:
  // Every variable must be a resource input, and every new value a separate output of the program,
  // which returns only the op's outputs and the new values.
  absl::Status CheckVariableIndices(const OpKernelConstruction& construction) {
    for (const int input : variable_arguments_) {
      if (input < 0 || input >= construction.num_inputs() - 1 ||
          construction.input_type(input) != tensorflow::DT_RESOURCE) {
        return absl::InvalidArgumentError(absl::StrCat(
            "device_var_reads_indices of ", name(), " has ", input,
            ", which is not the number of an argument that is a variable. The graph is damaged."));
      }
    }
    std::set<int> updated;
    for (const int output : variable_outputs_) {
      if (output < 0) continue;
      updates_variables_ = true;
      if (!updated.insert(output).second) {
        return absl::InvalidArgumentError(absl::StrCat("device_var_updates_indices of ", name(),
                                                       " has output ", output,
                                                       " twice. The graph is damaged."));
      }
    }
    const int results = construction.num_outputs() + static_cast<int>(updated.size());
    if (!updated.empty() && *updated.rbegin() >= results) {
      return absl::InvalidArgumentError(
          absl::StrCat("device_var_updates_indices of ", name(), " has output ", *updated.rbegin(),
                       "; the program returns ", results, " values. The graph is damaged."));
    }
    num_results_ = results;
    return absl::OkStatus();
  }

  // After success, the launch calls `done`.
  absl::Status Join(OpKernelContext* context, const ProgramKey& key, DoneCallback done) {
    TF_ASSIGN_OR_RETURN(const FoundProgram found, FindProgram(key));
    auto variables = std::make_shared<ArgumentVariables>();
    Arguments arguments;
    TF_RETURN_IF_ERROR(FindArguments(context, &arguments, variables.get()));
    if (found.program->LacksNames()) {
      Process::Get().programs->NameArguments(found.program->compiled().id, ArgumentNames(context));
    }
    auto write = [this, context, variables](std::vector<Tensor> outputs) {
      return WriteResults(context, *variables, std::move(outputs));
    };
    return JoinLaunch(context, Process::Get().launches, core_, key.launch_id, found,
                      {std::move(arguments), variables, updates_variables_}, std::move(write),
                      std::move(done));
  }

  // The variables' names, and the names of the nodes that compute the others.
  std::vector<ArgumentName> ArgumentNames(OpKernelContext* context) const {
    std::vector<ArgumentName> names;
    for (int input = 0; input < context->num_inputs() - 1; ++input) {
      ArgumentName& each = names.emplace_back();
      each.is_variable = context->input_dtype(input) == tensorflow::DT_RESOURCE;
      ResourceHandle handle;
      if (each.is_variable && HandleFromInput(context, input, &handle).ok()) {
        each.name = handle.name();
      } else if (input < def().input_size()) {
        each.name = def().input(input);
      }
    }
    return names;
  }

  // The launch reads the variables when it may start.
  absl::Status FindArguments(OpKernelContext* context, Arguments* arguments,
                             ArgumentVariables* variables) const {
    const int size = context->num_inputs() - 1;
    arguments->resize(size);
    variables->resize(size);
    for (ArgumentNumber argument : arguments->numbers()) {
      const int input = argument.value();
      if (context->input_dtype(input) != tensorflow::DT_RESOURCE) {
        (*arguments)[argument] = context->input(input);
        continue;
      }
      ResourceHandle handle;
      TF_RETURN_IF_ERROR(HandleFromInput(context, input, &handle));
      tensorflow::core::RefCountPtr<Var>& variable = (*variables)[argument];
      absl::Status status = FindVariable(context, handle, &variable);
      if (!status.ok()) {
        return DoesNotExist(absl::StrCat("Variable '", handle.name(), "', argument ", argument,
                                         " of TPU computation ", name(), ","),
                            absl::StatusCode::kFailedPrecondition, core_device_, status);
      }
      tensorflow::tf_shared_lock lock(*variable->mu());
      if (!variable->is_initialized) {
        return absl::FailedPreconditionError(absl::StrCat(
            "Variable '", handle.name(), "', argument ", argument, " of TPU computation ", name(),
            ", is not initialized on ", core_device_, ". Run its initializer before the step."));
      }
    }
    return absl::OkStatus();
  }

  // The variable belongs to the core's device, wherever the op is placed.
  absl::Status FindVariable(OpKernelContext* context, const ResourceHandle& handle,
                            tensorflow::core::RefCountPtr<Var>* variable) const {
    const bool is_on_core = context->device()->name() == core_device_;
    if (!is_on_core && handle.device() != core_device_) {
      return absl::InvalidArgumentError(absl::StrCat("It is a variable of ", handle.device()));
    }
    if (is_on_core) return LookupResource(context, handle, variable);
    // LookupResource refuses handles of another device.
    if (handle.IsRefCounting()) {
      TF_ASSIGN_OR_RETURN(Var* const found, handle.GetResource<Var>());
      found->Ref();
      variable->reset(found);
      return absl::OkStatus();
    }
    TF_RETURN_IF_ERROR(handle.ValidateType<Var>());
    TF_ASSIGN_OR_RETURN(auto resource, FindResource(context, handle));
    variable->reset(static_cast<Var*>(resource.release()));
    return absl::OkStatus();
  }

  // The program's outputs are the op's, interspersed with updated variables.
  absl::Status WriteResults(OpKernelContext* context, const ArgumentVariables& variables,
                            std::vector<Tensor> outputs) const {
    // Checked before any variable gets its new value.
    if (static_cast<int>(outputs.size()) < num_results_) {
      return absl::InternalError(absl::StrCat("TPU program of ", name(), " returned ",
                                              outputs.size(), " values; the op expects ",
                                              num_results_, "."));
    }
    std::vector<int> updated(outputs.size(), -1);
    for (size_t i = 0; i < variable_outputs_.size(); ++i) {
      if (variable_outputs_[i] >= 0) updated[variable_outputs_[i]] = variable_arguments_[i];
    }
    int next = 0;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (updated[i] >= 0) {
        Var* variable = variables[ArgumentNumber(updated[i])].get();
        tensorflow::mutex_lock lock(*variable->mu());
        *variable->tensor() = std::move(outputs[i]);
        variable->is_initialized = true;
        continue;
      }
      if (next == context->num_outputs()) break;
      context->set_output(next++, outputs[i]);
    }
    return absl::OkStatus();
  }

  std::string core_device_;
  Core core_;
  std::vector<int> variable_arguments_;
  std::vector<int> variable_outputs_;
  bool updates_variables_ = false;
  int num_results_ = 0;
};

REGISTER_KERNEL_BUILDER(Name("TPUExecute").Device(kTpuDeviceType).HostMemory("key"), ExecuteOp);
REGISTER_KERNEL_BUILDER(
    Name("TPUExecuteAndUpdateVariables").Device(kTpuDeviceType).HostMemory("key"), ExecuteOp);
// For ops that the pass launch_from_host has moved to the host.
REGISTER_KERNEL_BUILDER(Name("TPUExecute").Device(tensorflow::DEVICE_CPU), ExecuteOp);
REGISTER_KERNEL_BUILDER(Name("TPUExecuteAndUpdateVariables").Device(tensorflow::DEVICE_CPU),
                        ExecuteOp);

}  // namespace
}  // namespace tf_tpu_ext
