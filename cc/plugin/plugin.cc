// What happens when the library is loaded, and the C interface that Python uses.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cc/base/compute_pool.h"
#include "cc/base/fault_points.h"
#include "cc/base/json.h"
#include "cc/base/machine.h"
#include "cc/base/process.h"
#include "cc/base/program_options.h"
#include "cc/base/user_lines.h"
#include "cc/check/findings.h"
#include "cc/compiler/build/compilation_cache.h"
#include "cc/data/autotune_loop.h"
#include "cc/data/cloud_storage.h"
#include "cc/data/element_slots.h"
#include "cc/data/pipeline.h"
#include "cc/describe/describe.h"
#include "cc/device/device_factory.h"
#include "cc/kernels/check_preemption.h"
#include "cc/kernels/jit_kernel.h"
#include "cc/kernels/kernel_proxies.h"
#include "cc/kernels/pod_kernels.h"
#include "cc/ops/host_update_ops.h"
#include "cc/passes/bridge_passes.h"
#include "cc/passes/preparing_passes.h"
#include "cc/pjrt/compile_only.h"
#include "cc/pods/connections.h"
#include "cc/pods/endpoints.h"
#include "cc/profile/profiler.h"
#include "cc/program/target_program.h"
#include "cc/runtime/collective_table.h"
#include "cc/runtime/first_launches.h"
#include "cc/runtime/padding_stats.h"
#include "cc/runtime/process_objects.h"
#include "cc/runtime/program_cache.h"
#include "cc/runtime/target_programs.h"
#include "cc/transfer/transfer_stats.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

// Devices must be known before TensorFlow's context starts, and proxies are made of the kernels
// that exist at that time: a static initializer of a library loaded at import does both.
[[maybe_unused]] const bool kLoaded = [] {
  // First, because what is registered below may be called immediately. Never deleted, because
  // threads use the objects until the process ends.
  auto* const objects = new ProcessObjects;
  Process::Install(&objects->process());
  RegisterDeviceFactories(objects->process().machine,
                          [objects] { return objects->core_threads(); });
  RegisterHostUpdates();
  RegisterCheckPreemption();
  RegisterKernelProxies();
  RegisterBridgePasses();
  RegisterPreparingPass();
  RegisterJitKernels();
  RegisterProfiler(objects->process().recorder, objects->process().machine);
  return true;
}();

// A C string that the caller owns and frees with TfTpuExt_Free; null if there is none. All texts
// are passed to Python in this way.
using OwnedText = char*;

OwnedText Give(const std::string& text) { return strdup(text.c_str()); }

// Null on success.
OwnedText GiveError(const absl::Status& status) {
  return status.ok() ? nullptr : Give(std::string(status.message()));
}

// `folder` is as for TfTpuExt_Configure.
absl::Status Configure(MachineOptions options, const char* folder) {
  if (folder != nullptr) {
    options.compilation_cache = nullptr;
    if (*folder != '\0') {
      TF_ASSIGN_OR_RETURN(options.compilation_cache, CompilationCache::Open(folder));
    }
  }
  return Process::Get().machine->SetOptions(options);
}

template <class Records>
OwnedText GiveRecords(const Records& records) {
  return Give(JsonArray(DescribeAll(records)));
}

absl::StatusOr<JsonObject> CompileForTarget(const char* plugin_file, const char* topology_name,
                                            const char* chip_config, const char* module_file,
                                            const char* options_file, const char* optimized_file) {
  TF_ASSIGN_OR_RETURN(const PjrtPlugin plugin, PjrtPlugin::Load(plugin_file));
  TF_ASSIGN_OR_RETURN(const PjrtTopology topology,
                      PjrtTopology::Create(plugin, topology_name, chip_config));
  JsonObject devices, memory, costs;
  TF_ASSIGN_OR_RETURN(const auto attributes, topology.Attributes());
  for (const auto& [name, value] : attributes) devices.Integer(name, value);
  auto* const files = tensorflow::Env::Default();
  std::string module, options;
  TF_RETURN_IF_ERROR(tensorflow::ReadFileToString(files, module_file, &module));
  TF_RETURN_IF_ERROR(tensorflow::ReadFileToString(files, options_file, &options));
  JsonObject told;
  told.Object("devices", devices);
  const absl::StatusOr<CompiledForDevice> compiled = topology.Compile(std::move(module), options);
  if (!compiled.ok()) {
    // The devices are known all the same.
    return told.String("error", compiled.status().message())
        .String("code", absl::StatusCodeToString(compiled.status().code()));
  }
  for (const auto& [name, bytes] : compiled->memory) memory.Integer(name, bytes);
  for (const auto& [name, value] : compiled->costs) costs.Number(name, value);
  TF_RETURN_IF_ERROR(tensorflow::WriteStringToFile(files, optimized_file, compiled->optimized));
  return told.String("error", "").Object("memory", memory).Object("costs", costs);
}

}  // namespace
}  // namespace tf_tpu_ext

extern "C" {

using tf_tpu_ext::OwnedText;

// Changes the machine's settings; returns null, or why that failed. Program switches that
// `programs` does not name stay unchanged. `mesh_shape` has four sizes; zeros mean the shape that
// follows from the number of cores. The compilation cache stays unchanged if `compilation_cache` is
// null, and is switched off if it is empty.
OwnedText TfTpuExt_Configure(int cores, int local_devices, double wait_limit_seconds,
                             double host_limit_seconds, int sparse_cores, int64_t max_programs,
                             int64_t max_program_bytes, const char* programs,
                             const char* compilation_cache, int64_t max_cache_bytes,
                             const int* mesh_shape, int lowers_for_target) {
  tf_tpu_ext::MachineOptions options = tf_tpu_ext::GetMachineOptions();
  options.cores = cores;
  options.local_devices = local_devices != 0;
  std::copy_n(mesh_shape, options.mesh_shape.size(), options.mesh_shape.begin());
  options.lowers_for_target = lowers_for_target != 0;
  options.wait_limit = absl::Seconds(wait_limit_seconds);
  options.host_limit = absl::Seconds(host_limit_seconds);
  options.sparse_cores = sparse_cores;
  options.program_limits = {max_programs, max_program_bytes};
  options.max_cache_bytes = max_cache_bytes;
  absl::Status status = tf_tpu_ext::ApplyProgramOptions(programs, &options.programs);
  if (status.ok()) status = tf_tpu_ext::Configure(std::move(options), compilation_cache);
  return tf_tpu_ext::GiveError(status);
}

// Makes the folder the compilation cache, without touching it before there is something to store.
void TfTpuExt_UseCacheLater(const char* folder) {
  tf_tpu_ext::MachineOptions options = tf_tpu_ext::GetMachineOptions();
  options.compilation_cache = tf_tpu_ext::CompilationCache::OpenLater(folder);
  tf_tpu_ext::Process::Get().machine->SetOptions(options).IgnoreError();
}

// Sets the versions of the Python packages tf_tpu_ext and TensorFlow.
void TfTpuExt_SetVersions(const char* package, const char* tensorflow) {
  tf_tpu_ext::SetVersions(package, tensorflow);
}

// Notes where a worker that this process uses listens: "/job:worker/replica:0/task:1", "name:port".
void TfTpuExt_NoteHost(const char* task, const char* address) {
  tf_tpu_ext::Process::Get().endpoints->Note(task, address);
}

// Waits for a sign of life from a worker at "name:port"; returns null, or why there is none.
OwnedText TfTpuExt_CheckAlive(const char* address, double timeout_seconds) {
  return tf_tpu_ext::GiveError(tf_tpu_ext::CheckAlive(address, absl::Seconds(timeout_seconds)));
}

// Sets what the op CheckPreemption reports: whether training should end with a checkpoint.
void TfTpuExt_SetPreempted(int preempted) { tf_tpu_ext::SetPreempted(preempted != 0); }

// How many threads run compiled programs.
int TfTpuExt_ComputeThreads() { return tf_tpu_ext::Process::Get().compute_pool->NumThreads(); }

// The machine's settings, as a JSON object.
OwnedText TfTpuExt_Machine() {
  return tf_tpu_ext::Give(tf_tpu_ext::Describe(tf_tpu_ext::GetMachineOptions()).Text());
}

// All compilations so far, as a JSON array.
OwnedText TfTpuExt_CompilationRecords() {
  return tf_tpu_ext::GiveRecords(tf_tpu_ext::Process::Get().programs->Records());
}

// All clusters of outside compilation so far, as a JSON array.
OwnedText TfTpuExt_ClusterRecords() {
  return tf_tpu_ext::GiveRecords(tf_tpu_ext::Process::Get().transfer_stats->RecordedClusters());
}

// The number of elements in inputs that may be padded, and how many of them were padding.
void TfTpuExt_Padding(int64_t* elements, int64_t* padding) {
  const tf_tpu_ext::PaddingTotals totals = tf_tpu_ext::Process::Get().padding->Totals();
  *elements = totals.elements;
  *padding = totals.padding;
}

// The same, by program and argument, as a JSON array.
OwnedText TfTpuExt_PaddedInputs() {
  return tf_tpu_ext::GiveRecords(tf_tpu_ext::Process::Get().padding->Inputs());
}

// The collectives so far, with how long cores have waited in them, as a JSON array.
OwnedText TfTpuExt_Collectives() {
  return tf_tpu_ext::GiveRecords(tf_tpu_ext::Process::Get().collectives->stats().Totals());
}

// When cores arrived at the first collectives, as a JSON array.
OwnedText TfTpuExt_CollectiveMeetings() {
  return tf_tpu_ext::GiveRecords(tf_tpu_ext::Process::Get().collectives->stats().Meetings());
}

// What checks of steps have found, as a JSON array.
OwnedText TfTpuExt_Findings() {
  return tf_tpu_ext::GiveRecords(tf_tpu_ext::Process::Get().findings->Get());
}

// Sets the seed for the order in which the cores of watched steps call the host.
void TfTpuExt_SetHostOrder(uint64_t seed) { tf_tpu_ext::Process::Get().findings->set_seed(seed); }

// How many steps were checked.
int64_t TfTpuExt_CheckedSteps() { return tf_tpu_ext::Process::Get().findings->steps(); }

// When the first launches ran, as a JSON array.
OwnedText TfTpuExt_FirstLaunches() {
  return tf_tpu_ext::GiveRecords(tf_tpu_ext::Process::Get().first_launches->Get());
}

// What is going on, as a JSON object.
OwnedText TfTpuExt_Progress(double age_seconds) {
  return tf_tpu_ext::Give(tf_tpu_ext::DescribeProgress(absl::Seconds(age_seconds)).Text());
}

// Uses a folder for gs:// paths, or refuses these paths if `folder` is empty; returns null, or why
// that failed.
OwnedText TfTpuExt_MapCloudStorage(const char* folder) {
  return tf_tpu_ext::GiveError(tf_tpu_ext::MapCloudStorage(folder));
}

// Makes iterators created from now on end their autotuning as soon as they are deleted; returns
// null, or why that failed.
OwnedText TfTpuExt_ReplaceAutotuneLoop() {
  return tf_tpu_ext::GiveError(tf_tpu_ext::ReplaceAutotuneLoop());
}

// Gives new iterators TensorFlow's loop again; returns null, or why that failed.
OwnedText TfTpuExt_RestoreAutotuneLoop() {
  return tf_tpu_ext::GiveError(tf_tpu_ext::RestoreAutotuneLoop());
}

// Adds a pipeline in other processes (see cc/data/pipeline.h); returns its number.
int64_t TfTpuExt_AddPipeline() { return tf_tpu_ext::Pipeline::Add(); }

// Adds a process to a pipeline, through a socket that the library takes over.
void TfTpuExt_AddPipelineProcess(int64_t number, int socket) {
  tf_tpu_ext::OwnedFile requests(socket);
  const auto pipeline = tf_tpu_ext::Pipeline::Find(number);
  if (pipeline.ok()) (*pipeline)->AddProcess(std::move(requests));
}

void TfTpuExt_FailPipeline(int64_t number, const char* error) {
  const auto pipeline = tf_tpu_ext::Pipeline::Find(number);
  if (pipeline.ok()) (*pipeline)->Fail(error);
}

// Prevents further iterations; returns how many are in progress.
int TfTpuExt_ClosePipeline(int64_t number) {
  const auto pipeline = tf_tpu_ext::Pipeline::Find(number);
  if (!pipeline.ok()) return 0;
  (*pipeline)->Close();
  return (*pipeline)->iterations();
}

// How many seconds the longest-waiting iteration over the pipeline has waited.
double TfTpuExt_PipelineWait(int64_t number) {
  const auto pipeline = tf_tpu_ext::Pipeline::Find(number);
  return pipeline.ok() ? absl::ToDoubleSeconds((*pipeline)->LongestWait()) : 0.0;
}

void TfTpuExt_RemovePipeline(int64_t number) { tf_tpu_ext::Pipeline::Remove(number); }

void TfTpuExt_InterruptPipelines() { tf_tpu_ext::Pipeline::InterruptAll(); }

// For tests: arms a fault (see cc/base/fault_points.h), which stalls if the time is not zero.
// Returns null, or why that failed.
OwnedText TfTpuExt_ArmFault(const char* point, int64_t after, double stall_seconds) {
  return tf_tpu_ext::GiveError(tf_tpu_ext::ArmFault(point, after, absl::Seconds(stall_seconds)));
}

void TfTpuExt_DisarmFaults() { tf_tpu_ext::DisarmFaults(); }

// What has happened at all fault points so far, as a JSON array.
OwnedText TfTpuExt_CountFaults() { return tf_tpu_ext::GiveRecords(tf_tpu_ext::CountFaults()); }

// Whether a Python file belongs to TensorFlow, Keras or this package, rather than to the user.
int TfTpuExt_IsLibraryFile(const char* file) { return tf_tpu_ext::IsLibraryFile(file); }

// Takes the next program for the target's compiler, as a JSON object, and writes its module and
// options to these files. Waits until there is one; returns null after TfTpuExt_WakeTarget.
OwnedText TfTpuExt_TakeTargetProgram(const char* module_file, const char* options_file) {
  std::optional<tf_tpu_ext::TargetProgram> program =
      tf_tpu_ext::Process::Get().target_programs->Take();
  if (!program.has_value()) return nullptr;
  if (program->error.empty()) {
    auto* const files = tensorflow::Env::Default();
    absl::Status status = tensorflow::WriteStringToFile(files, module_file, program->module);
    status.Update(tensorflow::WriteStringToFile(files, options_file, program->options));
    if (!status.ok()) program->error = std::string(status.message());
  }
  return tf_tpu_ext::Give(tf_tpu_ext::Describe(*program).Text());
}

void TfTpuExt_WakeTarget() { tf_tpu_ext::Process::Get().target_programs->Wake(); }

// How many programs there have been for the target's compiler.
int64_t TfTpuExt_TargetPrograms() { return tf_tpu_ext::Process::Get().target_programs->added(); }

// Compiles the module in a file for a topology of a PJRT plugin, and writes the optimized module to
// a file. `chip_config` is as in cc/pjrt/compile_only.h. Returns a JSON object. Call this in a
// process of its own, since a plugin may do anything.
OwnedText TfTpuExt_CompileForTarget(const char* plugin, const char* topology,
                                    const char* chip_config, const char* module_file,
                                    const char* options_file, const char* optimized_file) {
  absl::StatusOr<tf_tpu_ext::JsonObject> told = tf_tpu_ext::CompileForTarget(
      plugin, topology, chip_config, module_file, options_file, optimized_file);
  if (!told.ok()) {
    told = tf_tpu_ext::JsonObject()
               .String("error", told.status().message())
               .String("code", absl::StatusCodeToString(told.status().code()));
  }
  return tf_tpu_ext::Give(told->Text());
}

void TfTpuExt_Free(OwnedText text) { std::free(text); }

}  // extern "C"
