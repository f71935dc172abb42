// What happens when the library is loaded, and the C interface that Python uses.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "cc/compiler/jit_kernel.h"
#include "cc/compiler/program_cache.h"
#include "cc/data/cloud_storage.h"
#include "cc/device/device_factory.h"
#include "cc/device/kernel_proxies.h"
#include "cc/device/machine.h"
#include "cc/passes/bridge_passes.h"
#include "cc/passes/fold_passes.h"
#include "cc/runtime/compute_pool.h"
#include "cc/runtime/padding_stats.h"
#include "cc/transfer/transfer_stats.h"

namespace tf_tpu_ext {
namespace {

// Devices must be known before TensorFlow's context starts, and proxies made of the kernels that
// exist now; both hold for a static initializer of a library loaded at import.
[[maybe_unused]] const bool kLoaded = [] {
  RegisterDeviceFactories();
  RegisterKernelProxies();
  RegisterBridgePasses();
  RegisterFoldPass();
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

// Changes the machine's settings; returns null, or a message that the caller frees.
char* TfTpuExt_Configure(int cores, int local_devices, double wait_limit_seconds,
                         int fold_host_calls, int share_updates, int tensorflow_kernels) {
  tf_tpu_ext::MachineOptions options;
  options.cores = cores;
  options.local_devices = local_devices != 0;
  options.wait_limit = absl::Seconds(wait_limit_seconds);
  options.fold_clusters = fold_host_calls != 0;
  options.share_updates = share_updates != 0;
  options.tensorflow_kernels = tensorflow_kernels != 0;
  const absl::Status status = tf_tpu_ext::SetMachineOptions(options);
  return status.ok() ? nullptr : tf_tpu_ext::Give(std::string(status.message()));
}

int TfTpuExt_Cores() { return tf_tpu_ext::GetMachineOptions().cores; }

// How many threads run compiled programs.
int TfTpuExt_ComputeThreads() { return tf_tpu_ext::ComputePool::NumThreads(); }

double TfTpuExt_WaitLimitSeconds() {
  return absl::ToDoubleSeconds(tf_tpu_ext::GetMachineOptions().wait_limit);
}

int TfTpuExt_SharesUpdates() { return tf_tpu_ext::GetMachineOptions().share_updates; }

int TfTpuExt_FoldsHostCalls() { return tf_tpu_ext::GetMachineOptions().fold_clusters ? 1 : 0; }

int TfTpuExt_UsesTensorFlowKernels() {
  return tf_tpu_ext::GetMachineOptions().tensorflow_kernels ? 1 : 0;
}

// The mesh shape [x, y, z, cores per chip] of the machine.
void TfTpuExt_MeshShape(int* shape) {
  const auto mesh = tf_tpu_ext::MeshShape(tf_tpu_ext::GetMachineOptions().cores);
  for (int i = 0; i < 4; ++i) shape[i] = mesh[i];
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
                    ",\"hits\":", record.hits, ",\"error\":", tf_tpu_ext::Quoted(record.error),
                    "}");
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
