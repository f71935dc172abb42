// Gives calls to functions that contain TPU computations the executor that starts programs on the
// caller's thread.
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "cc/base/machine.h"
#include "cc/ops/op_names.h"
#include "cc/ops/reachable_nodes.h"
#include "cc/program/traced_options.h"
#include "cc/runtime/caller_executor.h"
#include "tensorflow/core/common_runtime/eager/attr_builder.h"
#include "tensorflow/core/common_runtime/eager/context.h"
#include "tensorflow/core/common_runtime/eager/eager_op_rewrite_registry.h"
#include "tensorflow/core/common_runtime/eager/eager_operation.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::EagerOperation;
using tensorflow::FunctionDef;

constexpr char kExecutorType[] = "executor_type";

// Which functions contain TPU computations. It is asked at every call.
class TpuFunctions {
 public:
  // Whether the function contains computations, and their options allow the caller to start them.
  absl::StatusOr<bool> StartOnCaller(const std::string& name,
                                     const tensorflow::FunctionLibraryDefinition& library) {
    const Known known = Find(name, library);
    ProgramOptions options = GetMachineOptions().programs;
    if (!known.holds) return false;
    for (const std::string& traced : known.compile_options) {
      TF_RETURN_IF_ERROR(ApplyTracedOptions(traced, &options));
    }
    return options.launch_from_host;
  }

 private:
  struct Known {
    const FunctionDef* definition;  // only compared
    bool holds;
    // The options that the computations were traced with, if any.
    std::vector<std::string> compile_options;
  };

  Known Find(const std::string& name, const tensorflow::FunctionLibraryDefinition& library) {
    const FunctionDef* definition = library.Find(name);
    {
      absl::ReaderMutexLock lock(&mutex_);
      const auto known = known_.find(name);
      // Another function may have the same name after TensorFlow's context was recreated.
      if (known != known_.end() && known->second.definition == definition) return known->second;
    }
    Known read = {definition, false, {}};
    AnyReachableNode(name, library, [&read](const tensorflow::NodeDef& node) {
      read.holds = read.holds || node.attr().contains(kTpuReplicate);
      const auto options = node.attr().find(kCompileOptions);
      if (options != node.attr().end() && !options->second.s().empty()) {
        read.compile_options.push_back(options->second.s());
      }
      return false;
    });
    absl::MutexLock lock(&mutex_);
    known_[name] = read;
    return read;
  }

  absl::Mutex mutex_;
  absl::flat_hash_map<std::string, Known> known_ ABSL_GUARDED_BY(mutex_);
};

class RunOnCaller : public tensorflow::EagerOpRewrite {
 public:
  using EagerOpRewrite::EagerOpRewrite;

  absl::Status Run(EagerOperation* call, std::unique_ptr<EagerOperation>* /*replaced*/) override {
    if (!call->is_function()) return absl::OkStatus();
    // Another process may not have this executor.
    if (call->EagerContext().remote_device_mgr() != nullptr) return absl::OkStatus();
    TF_ASSIGN_OR_RETURN(const bool start,
                        functions_.StartOnCaller(call->Name(), *call->FuncLibDef()));
    if (!start) return absl::OkStatus();
    tensorflow::AttrValueMap given;
    call->Attrs().FillAttrValueMapWithoutDefaults(&given);
    const auto chosen = given.find(kExecutorType);
    if (chosen != given.end() && !chosen->second.s().empty()) return absl::OkStatus();
    // A builder keeps the first value given for an attribute.
    tensorflow::AttrBuilder others;
    others.CopyAttributes(call->Attrs());
    const std::string name = call->Name();
    call->MutableAttrs()->Reset(name.c_str());
    call->MutableAttrs()->NumInputs(static_cast<int>(call->Inputs().size()));
    call->MutableAttrs()->Set(kExecutorType, kCallerExecutor);
    call->MutableAttrs()->CopyAttributes(others);
    return absl::OkStatus();
  }

 private:
  TpuFunctions functions_;
};

REGISTER_REWRITE(tensorflow::EagerOpRewriteRegistry::PRE_EXECUTION, 1000, RunOnCaller);

}  // namespace
}  // namespace tf_tpu_ext
