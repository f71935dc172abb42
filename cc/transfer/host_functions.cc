#include "cc/transfer/host_functions.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cc/base/fault_points.h"
#include "cc/ops/reachable_nodes.h"
#include "cc/transfer/python_state.h"
#include "tensorflow/core/common_runtime/device_factory.h"
#include "tensorflow/core/common_runtime/device_mgr.h"
#include "tensorflow/core/common_runtime/process_function_library_runtime.h"
#include "tensorflow/core/common_runtime/rendezvous_mgr.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/function.pb.h"
#include "tensorflow/core/framework/rendezvous.h"
#include "tensorflow/core/lib/core/refcount.h"
#include "tensorflow/core/public/session_options.h"
#include "tensorflow/core/public/version.h"
#include "tsl/profiler/lib/traceme.h"
#include "tsl/profiler/lib/traceme_encode.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::CancellationManager;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::FunctionLibraryRuntime;
using tensorflow::NodeDef;
using tensorflow::Tensor;

constexpr char kTask[] = "/job:localhost/replica:0/task:0";

// A separate CPU device, since programs outlive sessions. Kept for the life of the process.
absl::StatusOr<tensorflow::DeviceMgr*> HostDevice() {
  static auto* const manager = [] {
    auto result = new absl::StatusOr<std::unique_ptr<tensorflow::DeviceMgr>>;
    tensorflow::DeviceFactory* factory =
        tensorflow::DeviceFactory::GetFactory(tensorflow::DEVICE_CPU);
    tensorflow::SessionOptions options;
    (*options.config.mutable_device_count())[tensorflow::DEVICE_CPU] = 1;
    std::vector<std::unique_ptr<tensorflow::Device>> devices;
    const absl::Status status = factory->CreateDevices(options, kTask, &devices);
    if (status.ok()) {
      *result = std::make_unique<tensorflow::StaticDeviceMgr>(std::move(devices));
    } else {
      *result = status;
    }
    return result;
  }();
  if (!manager->ok()) return manager->status();
  return (*manager)->get();
}

bool CallsPython(const NodeDef& node) {
  return node.op() == "PyFunc" || node.op() == "PyFuncStateless" || node.op() == "EagerPyFunc";
}

// Whether the op may wait for something other than its own work.
bool MayBlock(const NodeDef& node, const FunctionLibraryDefinition& library) {
  // A Python function can wait for anything, and a file may be remote.
  if (CallsPython(node) || node.op() == "ReadFile" || node.op() == "MatchingFiles") return true;
  const tensorflow::OpDef* op = nullptr;
  if (!library.LookUpOpDef(node.op(), &op).ok()) return true;
  if (!op->is_stateful() || absl::StartsWith(node.op(), "Random")) return false;
  static const auto* const quick = new absl::flat_hash_set<std::string>(
      {"Assert", "Print", "PrintV2", "Timestamp", "TruncatedNormal", "Multinomial",
       "ParameterizedTruncatedNormal", "If", "While", "Case", "PartitionedCall",
       "StatefulPartitionedCall"});
  return !quick->contains(node.op());
}

struct OpCounts {
  int blocking = 0;
  int stateful = 0;
  int python = 0;
};

void CountOps(const std::string& name, const FunctionLibraryDefinition& library,
              absl::flat_hash_set<std::string>* open, OpCounts* counts) {
  const tensorflow::FunctionDef* function = library.Find(name);
  if (function == nullptr || !open->insert(name).second) return;
  for (const NodeDef& node : function->node_def()) {
    if (MayBlock(node, library)) ++counts->blocking;
    if (CallsPython(node)) ++counts->python;
    const tensorflow::OpDef* op = nullptr;
    if (!library.LookUpOpDef(node.op(), &op).ok() || op->is_stateful()) ++counts->stateful;
    for (const std::string& callee : FunctionsCalledBy(node)) {
      CountOps(callee, library, open, counts);
    }
  }
  open->erase(name);
}

OpCounts CountOps(const std::string& name, const FunctionLibraryDefinition& library) {
  absl::flat_hash_set<std::string> open;
  OpCounts counts;
  CountOps(name, library, &open, &counts);
  return counts;
}

HostFunctionKind KindOf(const OpCounts& counts) {
  if (counts.blocking > 1) return HostFunctionKind::kBlocksInParallel;
  if (counts.blocking == 1) return HostFunctionKind::kBlocks;
  return counts.stateful > 0 ? HostFunctionKind::kComputes : HostFunctionKind::kPure;
}

// For functions of few ops, several times faster than the usual executor.
constexpr char kFastExecutor[] = "SINGLE_THREADED_EXECUTOR";

// A call needs no number that anything else knows.
constexpr int64_t kStepId = -1;

void RunOnCaller(const std::function<void()>& work) { work(); }

// Functions that TensorFlow does not inline are called with a rendezvous.
absl::Status MakeRendezvous(int64_t /*step_id*/, const tensorflow::DeviceMgr* devices,
                            tensorflow::core::RefCountPtr<tensorflow::Rendezvous>* rendezvous) {
  rendezvous->reset(new tensorflow::RefCountedIntraProcessRendezvous(devices));
  return absl::OkStatus();
}

}  // namespace

HostFunctions::HostFunctions(CoreThreads* host_threads)
    : runner_(
          [host_threads](std::function<void()> work) { host_threads->Schedule(std::move(work)); }),
      python_runner_([host_threads](std::function<void()> work) {
        host_threads->Schedule([work = std::move(work)] {
          KeepPythonState();
          work();
        });
      }) {}

HostFunctions::~HostFunctions() = default;

absl::StatusOr<std::shared_ptr<HostFunctions>> HostFunctions::Create(
    const std::vector<HostFunctionSource>& sources, int num_slots, CoreThreads* host_threads,
    TransferStats* stats) {
  TF_ASSIGN_OR_RETURN(tensorflow::DeviceMgr * device, HostDevice());
  std::shared_ptr<HostFunctions> made(new HostFunctions(host_threads));
  made->definitions_ = std::make_unique<FunctionLibraryDefinition>(
      tensorflow::OpRegistry::Global(), tensorflow::FunctionDefLibrary());
  for (const HostFunctionSource& source : sources) {
    tensorflow::FunctionDefLibrary library;
    if (!library.ParseFromString(source.library)) {
      return absl::InternalError(absl::StrCat("The library of host function ", source.name,
                                              " is not a FunctionDefLibrary."));
    }
    TF_RETURN_IF_ERROR(made->definitions_->AddLibrary(library));
  }
  made->runtime_ = std::make_unique<tensorflow::ProcessFunctionLibraryRuntime>(
      device, tensorflow::Env::Default(), /*config=*/nullptr, TF_GRAPH_DEF_VERSION,
      made->definitions_.get(), tensorflow::OptimizerOptions(), /*thread_pool=*/nullptr,
      /*parent=*/nullptr, /*session_metadata=*/nullptr,
      tensorflow::Rendezvous::Factory(MakeRendezvous));
  made->library_ = made->runtime_->GetFLR(absl::StrCat(kTask, "/device:CPU:0"));
  for (const HostFunctionSource& source : sources) {
    Function function;
    const OpCounts counts = CountOps(source.name, *made->definitions_);
    function.kind = KindOf(counts);
    function.calls_python = counts.python > 0;
    function.name = source.name;
    function.source = source.source;
    function.description = source.source.empty()
                               ? "outside_compilation"
                               : absl::StrCat("outside_compilation at ", source.source);
    function.counters = stats->CountersOf(source.name);
    // In a pod, another host has prepared the graph. Notes (cc/passes/cluster_note.h) are no
    // clusters.
    if (!source.cluster.empty()) {
      stats->RecordCluster({source.cluster, source.name, /*not_folded_because=*/"", source.source});
    }
    const bool pure = function.kind == HostFunctionKind::kPure;
    for (int slot = 0; slot < num_slots; ++slot) {
      TF_ASSIGN_OR_RETURN(const FunctionLibraryRuntime::Handle handle,
                          made->Instantiate(source.name, pure ? "" : absl::StrCat("slot_", slot),
                                            pure ? kFastExecutor : ""));
      function.handles.push_back(handle);
    }
    made->functions_.push_back(std::move(function));
  }
  return made;
}

absl::StatusOr<FunctionLibraryRuntime::Handle> HostFunctions::Instantiate(
    const std::string& name, const std::string& state, const std::string& executor) const {
  FunctionLibraryRuntime::InstantiateOptions options;
  options.state_handle = state;
  options.executor_type = executor;
  FunctionLibraryRuntime::Handle handle;
  TF_RETURN_IF_ERROR(library_->Instantiate(name, tensorflow::AttrSlice(), options, &handle));
  return handle;
}

absl::Status HostFunctions::Run(int number, int slot, CancellationManager* cancellation,
                                absl::Span<const Tensor> inputs,
                                std::vector<Tensor>* outputs) const {
  TF_RETURN_IF_ERROR(FaultAt(FaultPoint::kHostCall));
  static auto* const runner = new Runner(RunOnCaller);
  FunctionLibraryRuntime::Options options(kStepId);
  options.cancellation_manager = cancellation;
  options.runner = runner;
  options.run_all_kernels_inline = true;
  const Function& function = functions_[number];
  // Such a function may block, so this is never a thread of the program.
  if (function.calls_python) KeepPythonState();
  tsl::profiler::TraceMe trace([&] {
    return tsl::profiler::TraceMeEncode("TPU host call",
                                        {{"cluster", function.description}, {"slot", slot}});
  });
  absl::Status status = library_->RunSync(options, function.handles[slot], inputs, outputs);
  if (status.ok() || function.kind != HostFunctionKind::kPure) return status;
  // Runs it again on the usual executor, because the fast one doesn't say which op failed.
  auto handle = Instantiate(function.name, "to_explain_an_error", "");
  if (!handle.ok()) return status;
  const absl::Status explained = library_->RunSync(options, *handle, inputs, outputs);
  return explained.ok() ? status : explained;
}

void HostFunctions::Start(int number, int slot, std::shared_ptr<CancellationManager> cancellation,
                          std::vector<Tensor> inputs, Done done) const {
  if (absl::Status fault = FaultAt(FaultPoint::kHostCall); !fault.ok()) return done(fault);
  struct Call {
    std::shared_ptr<CancellationManager> cancellation;
    std::vector<Tensor> inputs;
    std::vector<Tensor> outputs;
  };
  auto call = std::make_shared<Call>();
  call->cancellation = std::move(cancellation);
  call->inputs = std::move(inputs);
  FunctionLibraryRuntime::Options options(kStepId);
  options.cancellation_manager = call->cancellation.get();
  options.runner = functions_[number].calls_python ? &python_runner_ : &runner_;
  library_->Run(options, functions_[number].handles[slot], call->inputs, &call->outputs,
                [call, done = std::move(done)](const absl::Status& status) {
                  call->inputs.clear();
                  if (status.ok()) {
                    done(std::move(call->outputs));
                  } else {
                    done(status);
                  }
                });
}

}  // namespace tf_tpu_ext
