// The switches of tf_tpu_ext.Options, which decide how a program is traced, compiled and started.
#ifndef TF_TPU_EXT_CC_BASE_PROGRAM_OPTIONS_H_
#define TF_TPU_EXT_CC_BASE_PROGRAM_OPTIONS_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tf_tpu_ext {

// A new switch needs a field here and its name below; Python has a field with that name.
struct ProgramOptions {
  // Whether programs call closed clusters of outside compilation directly.
  bool fold_host_calls = true;
  // Whether what all replicas compute identically runs once for all of them.
  bool share_updates = true;
  // Whether several replicas run as one program if there are more replicas than processors.
  bool stack_replicas = true;
  // Whether functions start their programs from the host, on the caller's thread, without an
  // executor for each core.
  bool launch_from_host = true;
  // Whether programs compute convolutions, pools and products of bfloat16 with TensorFlow's own
  // kernels.
  bool tensorflow_kernels = true;
  // Whether float32 products are computed with full precision; if not, as on a TPU.
  bool full_matmul_precision = true;
  // Whether programs that need nothing from the host while they run compute what they return.
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

// All switches as text, such as "fold_host_calls=1;share_updates=0".
std::string ProgramOptionsText(const ProgramOptions& options);

// Sets the switches named in such a text, and leaves the others unchanged.
absl::Status ApplyProgramOptions(absl::string_view text, ProgramOptions* options);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_PROGRAM_OPTIONS_H_
