// Gives calls of functions that hold TPU computations the executor that starts programs on the
// caller's thread.
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "cc/base/machine.h"
#include "cc/ops/op_names.h"
#include "cc/ops/reachable_nodes.h"
#include "cc/runtime/caller_executor.h"
#include "tensorflow/core/common_runtime/eager/attr_builder.h"
#include "tensorflow/core/common_runtime/eager/context.h"
#include "tensorflow/core/common_runtime/eager/eager_op_rewrite_registry.h"
#include "tensorflow/core/common_runtime/eager/eager_operation.h"
#include "tensorflow/core/framework/function.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::EagerOperation;
using tensorflow::FunctionDef;

constexpr char kExecutorType[] = "executor_type";

// Which functions hold TPU computations. It is asked at every call.
class TpuFunctions {
 public:
  bool Contains(const std::string& name, const tensorflow::FunctionLibraryDefinition& library) {
    const FunctionDef* definition = library.Find(name);
    {
      absl::ReaderMutexLock lock(&mutex_);
      const auto known = known_.find(name);
      // Another function may have the name after TensorFlow's context was made anew.
      if (known != known_.end() && known->second.definition == definition) {
        return known->second.holds;
      }
    }
    const bool holds = AnyReachableNode(name, library, [](const tensorflow::NodeDef& node) {
      return node.attr().contains(kTpuReplicate);
    });
    absl::MutexLock lock(&mutex_);
    known_[name] = {definition, holds};
    return holds;
  }

 private:
  struct Known {
    const FunctionDef* definition;  // only compared
    bool holds;
  };
  absl::Mutex mutex_;
  absl::flat_hash_map<std::string, Known> known_ ABSL_GUARDED_BY(mutex_);
};

class RunOnCaller : public tensorflow::EagerOpRewrite {
 public:
  using EagerOpRewrite::EagerOpRewrite;

  absl::Status Run(EagerOperation* call, std::unique_ptr<EagerOperation>* /*replaced*/) override {
    if (!call->is_function() || !GetMachineOptions().launch_from_host) return absl::OkStatus();
    // Another process may have no such executor.
    if (call->EagerContext().remote_device_mgr() != nullptr) return absl::OkStatus();
    if (!functions_.Contains(call->Name(), *call->FuncLibDef())) return absl::OkStatus();
    tensorflow::AttrValueMap given;
    call->Attrs().FillAttrValueMapWithoutDefaults(&given);
    const auto chosen = given.find(kExecutorType);
    if (chosen != given.end() && !chosen->second.s().empty()) return absl::OkStatus();
    // A builder keeps the first value of an attribute.
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
