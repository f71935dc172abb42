// The virtual TPU machine's settings: how many cores, how they are laid out, how long a wait may
// last.
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

// Of cc/compiler/build: a setting of the machine that only the compiler looks into.
class CompilationCache;

inline constexpr int kDefaultCores = 8;
inline constexpr int kMaxCores = 1024;

// TensorFlow makes lists for so many SparseCores of a core, and assumes as many where the topology
// has none.
inline constexpr int kMaxSparseCores = 4;

// How many compiled programs are kept, and how much memory they may take together.
struct ProgramLimits {
  int64_t programs = 1024;
  int64_t bytes = int64_t{4} << 30;
};

// Mesh shape [x, y, z, cores per chip].
using Mesh = std::array<int, 4>;

struct MachineOptions {
  int cores = kDefaultCores;
  // As large as the number of cores, or zeros: then it follows from that number.
  Mesh mesh_shape = {};
  // SparseCores of each core, for its tables and in the topology; 0 if the topology has none, and
  // tables are for as many as TensorFlow then assumes.
  int sparse_cores = 0;
  // Whether this process has cores of its own; a client of a remote machine has none.
  bool local_devices = true;
  absl::Duration wait_limit = absl::Minutes(30);
  // How long another host of a pod may give no sign of life.
  absl::Duration host_limit = absl::Minutes(1);
  // Of programs that were traced without options of their own.
  ProgramOptions programs;
  ProgramLimits program_limits;
  // Whether programs are also lowered for the compiler of a real TPU.
  bool lowers_for_target = false;
  // Where machine code is kept for later processes; null for nowhere.
  std::shared_ptr<const CompilationCache> compilation_cache;
  // How large its folder may become.
  int64_t max_cache_bytes = int64_t{2} << 30;
};

// Returns InvalidArgument unless `cores` is in [1, kMaxCores].
absl::Status ValidateCores(int64_t cores);

// For how many SparseCores of a core tables are divided.
int SparseCoresOf(const MachineOptions& options);

// The settings of a process. Thread-safe.
class Machine {
 public:
  MachineOptions options() const;

  // Takes all of the options or, with an error, none. The number of cores can't change once devices
  // exist.
  absl::Status SetOptions(const MachineOptions& options);

  // Freezes the number of cores: called when TensorFlow creates the devices.
  void MarkDevicesCreated();

 private:
  mutable absl::Mutex mutex_;
  bool devices_created_ ABSL_GUARDED_BY(mutex_) = false;
  MachineOptions options_ ABSL_GUARDED_BY(mutex_);
};

// Those of Process::Get().
MachineOptions GetMachineOptions();

// A chip has two cores, as a Cloud TPU's has, unless `cores` is odd; chips stand in the most square
// x * y rectangle.
Mesh MeshShape(int cores);

// The options' own shape, or else that of their number of cores.
Mesh MeshShape(const MachineOptions& options);

// Coordinates of every core, in the order of /device:TPU:i. The order is the row-major one that
// TensorFlow's bridge uses to turn coordinates back into device numbers; real TPUs number their
// cores alike.
std::vector<Mesh> CoreCoordinates(const Mesh& mesh_shape);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_MACHINE_H_
