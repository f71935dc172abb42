// _TPUCompileMlir and TPUCompileSucceededAssert.
#include <algorithm>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "cc/base/core_numbers.h"
#include "cc/base/launch_numbers.h"
#include "cc/base/machine.h"
#include "cc/base/number.h"
#include "cc/base/pod_shape.h"
#include "cc/base/process.h"
#include "cc/base/scalar_input.h"
#include "cc/compiler/build/program_description.h"
#include "cc/compiler/lower/lower_module.h"
#include "cc/kernels/ask_target.h"
#include "cc/kernels/compilation_status.h"
#include "cc/kernels/make_program.h"
#include "cc/ops/op_names.h"
#include "cc/pods/pod.h"
#include "cc/program/compilation_record.h"
#include "cc/program/program_key.h"
#include "cc/program/traced_options.h"
#include "cc/runtime/launch_ids.h"
#include "cc/runtime/launch_table.h"
#include "cc/runtime/pod_programs.h"
#include "cc/runtime/program_cache.h"
#include "cc/runtime/step_transfers.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/op_requires.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/fingerprint.h"
#include "tensorflow/core/protobuf/tpu/compile_metadata.pb.h"
#include "tsl/platform/tensor_float_32_utils.h"
#include "tsl/profiler/lib/traceme.h"
#include "tsl/profiler/lib/traceme_encode.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::PartialTensorShape;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tstring;

// tf2xla invents a stack frame for nodes that have none; it would only mislead.
absl::Status WithoutInventedTrace(const absl::Status& status) {
  constexpr absl::string_view kTrace =
      "Stack trace for op definition: \ndummy_file_name:10:dummy_function_name\n";
  constexpr absl::string_view kOrigin =
      "\nThe op is created at: \ndummy_file_name:10:dummy_function_name";
  return absl::Status(status.code(),
                      absl::StrReplaceAll(status.message(), {{kTrace, ""}, {kOrigin, ""}}));
}

// The number of a launch on all hosts, derived from its number on the op's own host. The numbers of
// launches on a single host are below it.
LaunchId LaunchIdInPod(const Pod& pod, LaunchId here) {
  constexpr uint64_t kInPod = uint64_t{1} << 62;
  const uint64_t number = tensorflow::FingerprintCat64(pod.here().incarnation, here.value());
  return LaunchId(static_cast<int64_t>(kInPod | (number & (kInPod - 1))));
}

// Compiles the op's module, once for every set of argument shapes, and starts a new launch. A
// failed compilation is reported through the compilation_status output, as on a TPU.
class CompileMlirOp : public OpKernel {
 public:
  explicit CompileMlirOp(OpKernelConstruction* construction)
      : OpKernel(construction),
        serves_clients_(construction->device()->parsed_name().job != "localhost"),
        is_copy_(construction->HasAttr(kCopyForHost)) {
    std::string metadata;
    OP_REQUIRES_OK(construction, construction->GetAttr("mlir_module", &module_));
    OP_REQUIRES_OK(construction, construction->GetAttr("metadata", &metadata));
    OP_REQUIRES_OK(construction, construction->GetAttr("num_computations", &num_computations_));
    OP_REQUIRES(construction, metadata_.ParseFromString(metadata),
                absl::InvalidArgumentError(absl::StrCat(
                    "The metadata attribute of ", name(),
                    " is not a TPUCompileMetadataProto. The graph was rewritten by a bridge of "
                    "another TensorFlow version; trace it again.")));
    if (construction->HasAttr(kLaunchGroup)) {
      OP_REQUIRES_OK(construction, construction->GetAttr(kLaunchGroup, &launch_group_));
      OP_REQUIRES_OK(construction, construction->GetAttr(kLaunchMember, &launch_member_));
    }
    if (HasPod(tensorflow::AttrSlice(construction->def()))) {
      absl::StatusOr<Pod> pod = PodOf(tensorflow::AttrSlice(construction->def()));
      OP_REQUIRES_OK(construction, pod.status());
      pod_ = std::make_shared<const Pod>(*std::move(pod));
    }
    const PodShape shape = Shape();
    place_in_pod_ = absl::StrCat(shape.hosts, ":", shape.host, ":", shape.cores_per_host);
    cores_here_ = FindCores();
    const auto fingerprint = tensorflow::Fingerprint128(absl::StrCat(module_, metadata));
    takes_ = QueuesOf(module_);
    key_prefix_ = absl::StrCat(fingerprint.low64, ":", fingerprint.high64, ":", module_.size());
  }

  void Compute(OpKernelContext* context) override {
    std::vector<TensorShape> shapes;
    OP_REQUIRES_OK(context, ArgumentShapes(context, &shapes));
    const std::string shape_text =
        absl::StrJoin(shapes, ";", [](std::string* out, const TensorShape& shape) {
          absl::StrAppend(out, shape.DebugString());
        });
    ProgramOptions options = GetMachineOptions().programs;
    OP_REQUIRES_OK(context, ApplyTracedOptions(metadata_.compile_options(), &options));
    if (pod_ != nullptr) OP_REQUIRES_OK(context, cores_here_.status());
    absl::StatusOr<std::shared_ptr<Program>> program = nullptr;
    if (pod_ == nullptr || !cores_here_->empty()) {
      program = Process::Get().programs->GetOrCompile(
          absl::StrCat(key_prefix_, "|", ForOneReplica(), "|", ProgramOptionsText(options), "|",
                       // tf2xla chooses the precision of products by this.
                       tsl::tensor_float_32_execution_enabled(), "|", place_in_pod_, "|",
                       shape_text),
          [&](int64_t id, CompilationRecord* record) {
            record->argument_shapes = shape_text;
            record->arguments = RecordArguments(shapes);
            record->options = OptionsText(options);
            return Compile(id, shapes, options, record);
          });
    }

    Tensor* status = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &status));
    status->scalar<tstring>()() = SerializeCompilationStatus(program.status());
    ProgramKey key;
    if (pod_ != nullptr) {
      key.pod_program = NameInPod(shape_text);
      NoteForPod(key.pod_program, program);
      // The key comes from the original of this copy.
      if (is_copy_) return CompileCopy(context, program.status());
    }
    if (ForOneReplica()) {
      OP_REQUIRES_VALUE(key.launch_id, context,
                        LaunchIdOfGroup(context, Process::Get().launches, launch_group_,
                                        launch_member_, std::max(1, metadata_.num_replicas())));
    } else {
      key.launch_id = Process::Get().launches->NextLaunchId();
    }
    if (pod_ != nullptr) key.launch_id = LaunchIdInPod(*pod_, key.launch_id);
    if (program.ok() && *program != nullptr) key.program_id = (*program)->compiled().id;
    if (takes_.any()) WatchQueues(context, program.status(), key.launch_id);
    const Tensor encoded =
        program.ok() ? EncodeProgramKey(key, *program) : EncodeCompilationFailure(program.status());
    for (int i = 0; i < num_computations_; ++i) context->set_output(1 + i, encoded);
  }

 private:
  bool ForOneReplica() const { return !launch_group_.empty(); }

  PodShape Shape() const { return pod_ == nullptr ? PodShape() : pod_->shape; }

  // The name of the program on all hosts: made from what they are all given.
  std::string NameInPod(const std::string& shape_text) const {
    const auto fingerprint = tensorflow::Fingerprint128(
        absl::StrCat(key_prefix_, "|", ForOneReplica(), "|", shape_text));
    return absl::StrCat(absl::Hex(fingerprint.low64), absl::Hex(fingerprint.high64));
  }

  // Makes the program known to the execute ops of this host.
  void NoteForPod(const std::string& name,
                  const absl::StatusOr<std::shared_ptr<Program>>& program) {
    Process::Get().pod_programs->Note(name, program, pod_);
    if (!program.ok() || *program == nullptr) return;
    absl::MutexLock lock(&mutex_);
    kept_.remove(*program);
    kept_.push_front(*program);
    if (kept_.size() > kMostKept) kept_.pop_back();
  }

  void CompileCopy(OpKernelContext* context, const absl::Status& compiled) const {
    if (!compiled.ok() && takes_.any() && cores_here_.ok()) {
      Process::Get().transfers->DropQueued(takes_, cores_here_->values(), context->step_id(),
                                           compiled);
    }
    const Tensor none = EncodeCompilationFailure(
        absl::InternalError(absl::StrCat(name(), " is a copy for another host: it has no key.")));
    for (int i = 0; i < num_computations_; ++i) context->set_output(1 + i, none);
  }

  // Ensures that what is queued for a program that never starts does not reach the next one.
  void WatchQueues(OpKernelContext* context, const absl::Status& compiled,
                   LaunchId launch_id) const {
    absl::StatusOr<ByNumber<Slot, Core>> cores = cores_here_;
    if (!cores.ok()) return;
    if (cores->empty()) {
      if (pod_ != nullptr) return;
      cores->Add(Core(0));
    }
    const int64_t step_id = context->step_id();
    if (!compiled.ok()) {
      Process::Get().transfers->DropQueued(takes_, cores->values(), step_id, compiled);
      return;
    }
    tensorflow::CancellationManager* cancellation = context->cancellation_manager();
    if (cancellation == nullptr) return;
    Process::Get().launches->Expect(launch_id);
    // Called when the step fails; otherwise, when it ends.
    auto end = [launch_id, step_id, takes = takes_, cores = std::move(cores->values())] {
      if (Process::Get().launches->StopExpecting(launch_id)) return;
      Process::Get().transfers->DropQueued(
          takes, cores, step_id,
          absl::CancelledError("The step ended before its TPU program started."));
    };
    if (!cancellation->RegisterCallback(cancellation->get_cancellation_token(), end)) end();
  }

  absl::Status ArgumentShapes(OpKernelContext* context, std::vector<TensorShape>* shapes) const {
    tensorflow::OpInputList dynamic;
    TF_RETURN_IF_ERROR(context->input_list("dynamic_shapes", &dynamic));
    int next_dynamic = 0;
    for (const auto& argument : metadata_.args()) {
      PartialTensorShape partial;
      TF_RETURN_IF_ERROR(PartialTensorShape::BuildPartialTensorShape(argument.shape(), &partial));
      TensorShape shape;
      if (!partial.AsTensorShape(&shape)) {
        if (next_dynamic >= dynamic.size()) {
          return absl::InternalError(absl::StrCat(name(), " gets ", dynamic.size(),
                                                  " dynamic shapes, fewer than its arguments of "
                                                  "unknown shape; argument '",
                                                  argument.name(), "' has none."));
        }
        TF_RETURN_IF_ERROR(
            TensorShape::BuildTensorShape(dynamic[next_dynamic++].flat<int64_t>(), &shape));
      }
      shapes->push_back(std::move(shape));
    }
    return absl::OkStatus();
  }

  std::vector<RecordedArgument> RecordArguments(const std::vector<TensorShape>& shapes) const {
    std::vector<RecordedArgument> recorded;
    for (int i = 0; i < metadata_.args_size(); ++i) {
      const auto& argument = metadata_.args(i);
      RecordedArgument& each = recorded.emplace_back();
      each.name = argument.name();
      each.type = tensorflow::DataTypeString(argument.dtype());
      each.shape = shapes[i].DebugString();
      each.bytes = shapes[i].num_elements() * tensorflow::DataTypeSize(argument.dtype());
      each.is_variable = argument.kind() == tensorflow::tpu::TPUCompileMetadataProto::Arg::VARIABLE;
      each.is_dynamic = absl::c_linear_search(argument.is_bounded_dynamic_dim(), true);
    }
    return recorded;
  }

  static std::string OptionsText(const ProgramOptions& options) {
    return absl::StrCat(ProgramOptionsText(options),
                        ";tensor_float_32=", tsl::tensor_float_32_execution_enabled());
  }

  // Those of the program's cores that are on this host.
  absl::StatusOr<ByNumber<Slot, Core>> FindCores() const {
    if (metadata_.num_replicas() < 0 || metadata_.num_cores_per_replica() < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("The metadata of ", name(), " has ", metadata_.num_replicas(),
                       " replicas of ", metadata_.num_cores_per_replica(),
                       " cores; expected positive numbers. The graph is damaged."));
    }
    const int64_t replicas = std::max(1, metadata_.num_replicas());
    const int64_t cores_per_replica = std::max(1, metadata_.num_cores_per_replica());
    const int64_t wanted = replicas * cores_per_replica;
    const int cores_here = GetMachineOptions().cores;
    const PodShape pod = Shape();
    if (pod.is_pod() && pod.cores_per_host != cores_here) {
      return absl::InvalidArgumentError(
          absl::StrCat("The computation is for a pod whose hosts have ", pod.cores_per_host,
                       " cores each; this one has ", cores_here,
                       ". Give all workers the same number: tf-tpu worker --cores=", cores_here));
    }
    const int64_t cores = int64_t{cores_here} * pod.hosts;
    if (wanted > cores) {
      const std::string advice =
          serves_clients_
              ? "Connect to more workers, or give them more cores by tf-tpu worker --cores."
              : absl::StrCat("Call tf_tpu_ext.configure(cores=", wanted,
                             ") at the start of the program.");
      return absl::InvalidArgumentError(
          absl::StrCat("The computation needs ", wanted, " cores (", replicas, " replicas of ",
                       cores_per_replica, "); this virtual TPU has ", cores, ". ", advice));
    }
    return CoresHere(metadata_, pod);
  }

  absl::StatusOr<std::shared_ptr<Program>> Compile(int64_t id,
                                                   const std::vector<TensorShape>& shapes,
                                                   const ProgramOptions& options,
                                                   CompilationRecord* record) const {
    record->name = metadata_.module_name().empty() ? name() : metadata_.module_name();
    tsl::profiler::TraceMe trace(
        [&] { return tsl::profiler::TraceMeEncode("TPU compile", {{"program", record->name}}); });
    TF_RETURN_IF_ERROR(cores_here_.status());
    record->num_replicas = std::max(1, metadata_.num_replicas());
    record->num_cores_per_replica = std::max(1, metadata_.num_cores_per_replica());
    const absl::Time start = absl::Now();
    record->started = start;
    LoweredModule lowered;
    lowered.options = options;
    lowered.for_one_replica = ForOneReplica();
    lowered.pod = Shape();
    const absl::Status status = LowerModule(module_, metadata_, shapes, &lowered);
    record->lowering = absl::Now() - start;
    TF_RETURN_IF_ERROR(WithoutInventedTrace(status));
    AskTarget(*record, metadata_, [&](LoweredModule* for_target) {
      return WithoutInventedTrace(LowerModule(module_, metadata_, shapes, for_target));
    });
    return MakeProgram(lowered, metadata_, id, record);
  }

  // How many programs the op keeps for execute ops that look them up by their name in the pod. More
  // than a function has steps in progress at once, each with arguments of different shapes.
  static constexpr size_t kMostKept = 16;

  // Whether programs of other processes run here.
  const bool serves_clients_;
  // Whether it compiles, for this host, what an op on another host starts.
  const bool is_copy_;
  // Null without other hosts.
  std::shared_ptr<const Pod> pod_;
  std::string place_in_pod_;
  // Those of the program's cores that are on this host. An error is reported where they are needed.
  absl::StatusOr<ByNumber<Slot, Core>> cores_here_;
  std::string module_;
  tensorflow::tpu::TPUCompileMetadataProto metadata_;
  // Empty unless the op serves one of several replicas.
  std::string launch_group_;
  std::string launch_member_;
  int num_computations_ = 0;
  TakenQueues takes_;
  std::string key_prefix_;
  absl::Mutex mutex_;
  // The most recently used first.
  std::list<std::shared_ptr<Program>> kept_ ABSL_GUARDED_BY(mutex_);
};

class CompileSucceededAssertOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const absl::StatusOr<tstring> compilation =
        ScalarInput<tstring>(*context, context->input(0), "compilation_status");
    OP_REQUIRES_OK(context, compilation.status());
    const absl::Status status = ParseCompilationStatus(absl::string_view(*compilation));
    OP_REQUIRES(
        context, status.ok(),
        absl::Status(status.code(), absl::StrCat("Compilation failure: ", status.message())));
  }
};

REGISTER_KERNEL_BUILDER(Name("_TPUCompileMlir").Device(tensorflow::DEVICE_CPU), CompileMlirOp);
REGISTER_KERNEL_BUILDER(Name("TPUCompileSucceededAssert").Device(tensorflow::DEVICE_CPU),
                        CompileSucceededAssertOp);

}  // namespace
}  // namespace tf_tpu_ext
