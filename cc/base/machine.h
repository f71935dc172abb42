// The settings of the virtual TPU machine: how many cores it has, how they are laid out, how long a
// wait may last.
#ifndef TF_TPU_EXT_CC_BASE_MACHINE_H_
#define TF_TPU_EXT_CC_BASE_MACHINE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cc/base/program_options.h"

namespace tf_tpu_ext {

// Defined in cc/compiler/build: a setting of the machine that only the compiler looks into.
class CompilationCache;

inline constexpr int kDefaultCores = 8;
inline constexpr int kMaxCores = 1024;

// TensorFlow makes lists for this many SparseCores per core, and assumes this number if the
// topology has none.
inline constexpr int kMaxSparseCores = 4;

// How many compiled programs are kept, and how much memory they may take in total.
struct ProgramLimits {
  int64_t programs = 1024;
  int64_t bytes = int64_t{4} << 30;
};

// Mesh shape [x, y, z, cores per chip].
using Mesh = std::array<int, 4>;

struct MachineOptions {
  int cores = kDefaultCores;
  // The product is the number of cores. If all are zero, the shape follows from that number.
  Mesh mesh_shape = {};
  // SparseCores of each core, for its tables and in the topology. If 0, the topology has none, and
  // tables are divided for as many as TensorFlow then assumes.
  int sparse_cores = 0;
  // Whether this process has cores of its own; a client of a remote machine has none.
  bool local_devices = true;
  absl::Duration wait_limit = absl::Minutes(30);
  // How long another host of a pod may go without a sign of life.
  absl::Duration host_limit = absl::Minutes(1);
  // For programs that were traced without options of their own.
  ProgramOptions programs;
  ProgramLimits program_limits;
  // Whether programs are also lowered for the compiler of a real TPU.
  bool lowers_for_target = false;
  // Where machine code is kept for later processes; null if it is not kept.
  std::shared_ptr<const CompilationCache> compilation_cache;
  // Maximum size of its folder.
  int64_t max_cache_bytes = int64_t{2} << 30;
};

// Returns InvalidArgument unless `cores` is in [1, kMaxCores].
absl::Status ValidateCores(int64_t cores);

// The number of SparseCores per core that tables are divided for.
int SparseCoresOf(const MachineOptions& options);

// The settings of a process. Thread-safe.
class Machine {
 public:
  MachineOptions options() const;

  // Takes all options or, if it returns an error, none. The number of cores can't change once
  // devices exist.
  absl::Status SetOptions(const MachineOptions& options);

  // Freezes the number of cores. Called when TensorFlow creates the devices.
  void MarkDevicesCreated();

 private:
  mutable absl::Mutex mutex_;
  bool devices_created_ ABSL_GUARDED_BY(mutex_) = false;
  MachineOptions options_ ABSL_GUARDED_BY(mutex_);
};

// The options of Process::Get()'s machine.
MachineOptions GetMachineOptions();

// A chip has two cores, as on a Cloud TPU, unless `cores` is odd; the chips form the x * y
// rectangle that is closest to a square.
Mesh MeshShape(int cores);

// The shape given in the options, or else the one for their number of cores.
Mesh MeshShape(const MachineOptions& options);

// The coordinates of every core, in the order of /device:TPU:i. This is the row-major order by
// which TensorFlow's bridge turns coordinates back into device numbers; real TPUs number their
// cores in the same way.
std::vector<Mesh> CoreCoordinates(const Mesh& mesh_shape);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_MACHINE_H_
