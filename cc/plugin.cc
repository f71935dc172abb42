// What happens when the library is loaded, and the C interface that Python uses.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cc/base/compute_pool.h"
#include "cc/base/machine.h"
#include "cc/compiler/build/compilation_cache.h"
#include "cc/data/cloud_storage.h"
#include "cc/device/device_factory.h"
#include "cc/kernels/jit_kernel.h"
#include "cc/kernels/kernel_proxies.h"
#include "cc/ops/host_update_ops.h"
#include "cc/passes/bridge_passes.h"
#include "cc/passes/preparing_passes.h"
#include "cc/program/padding_stats.h"
#include "cc/runtime/program_cache.h"
#include "cc/transfer/transfer_stats.h"

namespace tf_tpu_ext {
namespace {

// Devices must be known before TensorFlow's context starts, and proxies made of the kernels that
// exist now; both hold for a static initializer of a library loaded at import.
[[maybe_unused]] const bool kLoaded = [] {
  RegisterDeviceFactories();
  RegisterHostUpdates();
  RegisterKernelProxies();
  RegisterBridgePasses();
  RegisterPreparingPass();
  RegisterJitKernels();
  return true;
}();

// Gives a string to the caller, who frees it with TfTpuExt_Free.
char* Give(const std::string& text) { return strdup(text.c_str()); }

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (unsigned char c : text) {
    if (c == '"' || c == '\\') {
      quoted.push_back('\\');
      quoted.push_back(c);
    } else if (c < 0x20) {
      static constexpr char kHex[] = "0123456789abcdef";
      absl::StrAppend(&quoted, "\\u00", std::string(1, kHex[c >> 4]), std::string(1, kHex[c & 15]));
    } else {
      quoted.push_back(c);
    }
  }
  quoted.push_back('"');
  return quoted;
}

}  // namespace
}  // namespace tf_tpu_ext

extern "C" {

// Changes the machine's settings; returns null, or a message that the caller frees. The compilation
// cache stays as it is if null, and ends if empty.
char* TfTpuExt_Configure(int cores, int local_devices, double wait_limit_seconds,
                         int fold_host_calls, int share_updates, int stack_replicas,
                         int launch_from_host, int tensorflow_kernels,
                         const char* compilation_cache) {
  tf_tpu_ext::MachineOptions options;
  options.cores = cores;
  options.local_devices = local_devices != 0;
  options.wait_limit = absl::Seconds(wait_limit_seconds);
  options.fold_clusters = fold_host_calls != 0;
  options.share_updates = share_updates != 0;
  options.stack_replicas = stack_replicas != 0;
  options.launch_from_host = launch_from_host != 0;
  options.tensorflow_kernels = tensorflow_kernels != 0;
  std::shared_ptr<tf_tpu_ext::CompilationCache> cache;
  absl::Status status;
  if (compilation_cache != nullptr && *compilation_cache != '\0') {
    auto opened = tf_tpu_ext::CompilationCache::Open(compilation_cache);
    status = opened.status();
    if (opened.ok()) cache = *std::move(opened);
  }
  if (status.ok()) status = tf_tpu_ext::SetMachineOptions(options);
  if (!status.ok()) return tf_tpu_ext::Give(std::string(status.message()));
  if (compilation_cache != nullptr) {
    tf_tpu_ext::CompilationCache::SetCurrent(std::move(cache));
  }
  return nullptr;
}

// How many threads run compiled programs.
int TfTpuExt_ComputeThreads() { return tf_tpu_ext::ComputePool::NumThreads(); }

// The machine's settings, as a JSON object that the caller frees.
char* TfTpuExt_Machine() {
  const tf_tpu_ext::MachineOptions options = tf_tpu_ext::GetMachineOptions();
  const auto cache = tf_tpu_ext::CompilationCache::Current();
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  return tf_tpu_ext::Give(absl::StrCat(
      "{\"cores\":", options.cores, ",\"mesh_shape\":[",
      absl::StrJoin(tf_tpu_ext::MeshShape(options.cores), ","), "],\"wait_limit_seconds\":",
      absl::StrFormat("%.17g", absl::ToDoubleSeconds(options.wait_limit)), ",\"fold_host_calls\":",
      flag(options.fold_clusters), ",\"share_updates\":", flag(options.share_updates),
      ",\"stack_replicas\":", flag(options.stack_replicas), ",\"launch_from_host\":",
      flag(options.launch_from_host), ",\"tensorflow_kernels\":", flag(options.tensorflow_kernels),
      ",\"compilation_cache\":", cache == nullptr ? "null" : tf_tpu_ext::Quoted(cache->folder()),
      "}"));
}

// All compilations so far, as a JSON list that the caller frees.
char* TfTpuExt_CompilationRecords() {
  std::string json = "[";
  for (const auto& record : tf_tpu_ext::ProgramCache::Get().Records()) {
    absl::StrAppend(&json, json.size() > 1 ? "," : "", "{\"program_id\":", record.program_id,
                    ",\"name\":", tf_tpu_ext::Quoted(record.name),
                    ",\"argument_shapes\":", tf_tpu_ext::Quoted(record.argument_shapes),
                    ",\"num_replicas\":", record.num_replicas,
                    ",\"num_cores_per_replica\":", record.num_cores_per_replica,
                    ",\"lowering_seconds\":", absl::ToDoubleSeconds(record.lowering),
                    ",\"building_seconds\":", absl::ToDoubleSeconds(record.building),
                    ",\"tensorflow_kernels\":", record.tensorflow_kernels,
                    ",\"stacked_replicas\":", record.stacked_replicas,
                    ",\"restored\":", record.restored ? "true" : "false", ",\"hits\":", record.hits,
                    ",\"error\":", tf_tpu_ext::Quoted(record.error), "}");
  }
  return tf_tpu_ext::Give(json + "]");
}

// All clusters of outside compilation so far, as a JSON list that the caller frees.
char* TfTpuExt_ClusterRecords() {
  std::string json = "[";
  const tf_tpu_ext::ClusterCounters none;
  for (const auto& record : tf_tpu_ext::RecordedClusters()) {
    const auto found = tf_tpu_ext::FindCounters(record);
    const tf_tpu_ext::ClusterCounters& counters = found == nullptr ? none : *found;
    absl::StrAppend(
        &json, json.size() > 1 ? "," : "", "{\"cluster\":", tf_tpu_ext::Quoted(record.cluster),
        ",\"source\":", tf_tpu_ext::Quoted(record.source),
        ",\"not_folded_because\":", tf_tpu_ext::Quoted(record.not_folded_because),
        ",\"calls\":", counters.calls.load(), ",\"bytes_to_host\":", counters.bytes_to_host.load(),
        ",\"bytes_to_device\":", counters.bytes_to_device.load(),
        ",\"running_seconds\":", counters.running_nanoseconds.load() * 1e-9,
        ",\"waiting_seconds\":", counters.waiting_nanoseconds.load() * 1e-9, "}");
  }
  return tf_tpu_ext::Give(json + "]");
}

// Elements of inputs that may be padded, and those of them that were padding.
void TfTpuExt_Padding(int64_t* elements, int64_t* padding) {
  const tf_tpu_ext::PaddingTotals totals = tf_tpu_ext::TotalPadding();
  *elements = totals.elements;
  *padding = totals.padding;
}

// Takes the files of gs:// from a folder, or refuses them if it is empty; returns null, or a
// message that the caller frees.
char* TfTpuExt_MapCloudStorage(const char* folder) {
  const absl::Status status = tf_tpu_ext::MapCloudStorage(folder);
  return status.ok() ? nullptr : tf_tpu_ext::Give(std::string(status.message()));
}

void TfTpuExt_Free(char* text) { std::free(text); }

}  // extern "C"
