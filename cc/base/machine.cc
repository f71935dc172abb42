#include "cc/base/machine.h"

#include <functional>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cc/base/process.h"

namespace tf_tpu_ext {

absl::Status ValidateCores(int64_t cores) {
  if (cores >= 1 && cores <= kMaxCores) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("A virtual TPU has from 1 to ", kMaxCores, " cores. Received: cores=", cores));
}

int SparseCoresOf(const MachineOptions& options) {
  return options.sparse_cores == 0 ? kMaxSparseCores : options.sparse_cores;
}

absl::Status Machine::SetOptions(const MachineOptions& options) {
  if (absl::Status valid = ValidateCores(options.cores); !valid.ok()) return valid;
  if (const Mesh& mesh = options.mesh_shape; mesh != Mesh{}) {
    const int64_t size = absl::c_accumulate(mesh, int64_t{1}, std::multiplies<int64_t>());
    if (size != options.cores || absl::c_any_of(mesh, [](int extent) { return extent < 1; })) {
      return absl::InvalidArgumentError(absl::StrCat("A mesh of ", absl::StrJoin(mesh, " x "),
                                                     " does not hold ", options.cores, " cores."));
    }
  }
  const int sparse_cores = options.sparse_cores;
  if (sparse_cores < 0 || sparse_cores > kMaxSparseCores || sparse_cores == 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("A virtual core has 0, 1, 2 or ", kMaxSparseCores,
                     " SparseCores. Received: sparse_cores=", sparse_cores));
  }
  if (options.wait_limit <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat("The wait limit must be positive. Received: ",
                                                   absl::FormatDuration(options.wait_limit)));
  }
  if (options.host_limit <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("The limit of hosts must be positive. Received: ",
                     absl::FormatDuration(options.host_limit)));
  }
  const ProgramLimits& limits = options.program_limits;
  if (limits.programs < 1 || limits.bytes < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("The limits of compiled programs must be positive. Received: max_programs=",
                     limits.programs, ", max_program_bytes=", limits.bytes));
  }
  if (options.max_cache_bytes < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("The limit of the compilation cache must be positive. Received: "
                     "max_cache_bytes=",
                     options.max_cache_bytes));
  }
  absl::MutexLock lock(&mutex_);
  if (devices_created_ &&
      (options.cores != options_.cores || options.local_devices != options_.local_devices)) {
    const auto flag = [](bool value) { return value ? "True" : "False"; };
    return absl::FailedPreconditionError(absl::StrCat(
        "TensorFlow has already created its devices, with ", options_.cores,
        " virtual TPU cores and local_devices=", flag(options_.local_devices),
        "; received: cores=", options.cores, ", local_devices=", flag(options.local_devices),
        ". Call tf_tpu_ext.configure() before the first TensorFlow operation."));
  }
  options_ = options;
  return absl::OkStatus();
}

MachineOptions Machine::options() const {
  absl::MutexLock lock(&mutex_);
  return options_;
}

void Machine::MarkDevicesCreated() {
  absl::MutexLock lock(&mutex_);
  devices_created_ = true;
}

MachineOptions GetMachineOptions() { return Process::Get().machine->options(); }

Mesh MeshShape(int cores) {
  const int cores_per_chip = cores % 2 == 0 ? 2 : 1;
  const int chips = cores / cores_per_chip;
  int y = 1;
  for (int side = 1; side * side <= chips; ++side) {
    if (chips % side == 0) y = side;
  }
  return {chips / y, y, 1, cores_per_chip};
}

Mesh MeshShape(const MachineOptions& options) {
  return options.mesh_shape == Mesh{} ? MeshShape(options.cores) : options.mesh_shape;
}

std::vector<Mesh> CoreCoordinates(const Mesh& mesh_shape) {
  const auto [x, y, z, cores_per_chip] = mesh_shape;
  std::vector<Mesh> coordinates;
  for (int chip = 0; chip < x * y * z; ++chip) {
    for (int core = 0; core < cores_per_chip; ++core) {
      coordinates.push_back({chip % x, chip / x % y, chip / x / y, core});
    }
  }
  return coordinates;
}

}  // namespace tf_tpu_ext
