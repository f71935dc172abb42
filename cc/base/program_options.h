// The switches of tf_tpu_ext.Options: how a program is traced, compiled and started.
#ifndef TF_TPU_EXT_CC_BASE_PROGRAM_OPTIONS_H_
#define TF_TPU_EXT_CC_BASE_PROGRAM_OPTIONS_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tf_tpu_ext {

// A new switch needs a field here and its name below; Python has a field of that name.
struct ProgramOptions {
  // Whether programs call closed clusters of outside compilation by themselves.
  bool fold_host_calls = true;
  // Whether what all replicas compute alike runs once for all of them.
  bool share_updates = true;
  // Whether several replicas run as one program where there are more than processors.
  bool stack_replicas = true;
  // Whether functions start their programs from the host, on the thread of the caller, without an
  // executor for each core.
  bool launch_from_host = true;
  // Whether programs compute convolutions and pools by TensorFlow's own kernels.
  bool tensorflow_kernels = true;
  // Whether products of float32 are computed in full; if not, as a TPU does.
  bool full_matmul_precision = true;
  // Whether programs that need nothing of the host while they run compute what they return.
  bool compute = true;
  // Whether programs are watched while they run, see cc/check.
  bool check = false;
};

inline constexpr std::pair<const char*, bool ProgramOptions::*> kProgramSwitches[] = {
    {"fold_host_calls", &ProgramOptions::fold_host_calls},
    {"share_updates", &ProgramOptions::share_updates},
    {"stack_replicas", &ProgramOptions::stack_replicas},
    {"launch_from_host", &ProgramOptions::launch_from_host},
    {"tensorflow_kernels", &ProgramOptions::tensorflow_kernels},
    {"matmul_precision", &ProgramOptions::full_matmul_precision},
    {"compute", &ProgramOptions::compute},
    {"check", &ProgramOptions::check},
};

// All switches as a text such as "fold_host_calls=1;share_updates=0".
std::string ProgramOptionsText(const ProgramOptions& options);

// Sets the switches that such a text names, and leaves the others as they are.
absl::Status ApplyProgramOptions(absl::string_view text, ProgramOptions* options);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_PROGRAM_OPTIONS_H_
