// What differs between versions in the parameters of thunks. From 2.21 on, matrix products take
// YNNPACK's thread pool; XLA of 2.19 and 2.20 has no thunks that need one.
#ifndef TF_TPU_EXT_CC_ABI_XLA_THUNK_PARAMS_H_
#define TF_TPU_EXT_CC_ABI_XLA_THUNK_PARAMS_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cc/abi/xla/minor.h"
#include "xla/backends/cpu/runtime/thunk.h"
#include "xla/executable_run_options.h"
#include "xla/service/cpu/cpu_executable.h"

namespace tf_tpu_ext {

#if TF_TPU_EXT_TENSORFLOW_MINOR >= 21

using YnnParams = xla::cpu::Thunk::YnnParams;

inline absl::StatusOr<YnnParams> MakeYnnParams(const xla::ExecutableRunOptions& options) {
  return YnnParams::Create(&options);
}
inline bool WantsYnnParams(const xla::cpu::CpuExecutable& executable) {
  return executable.has_ynn_fusions();
}
inline void SetYnnParams(YnnParams* params, xla::cpu::Thunk::ExecuteParams* execute) {
  execute->ynn_params = params;
}
inline void SetRun(int64_t run_id, int64_t device, xla::cpu::Thunk::ExecuteParams* execute) {
  execute->run_id = run_id;
  execute->device_ordinal = device;
}

#else

struct YnnParams {};

inline absl::StatusOr<YnnParams> MakeYnnParams(const xla::ExecutableRunOptions&) {
  return absl::UnimplementedError("XLA of this TensorFlow has no YNNPACK.");
}
inline bool WantsYnnParams(const xla::cpu::CpuExecutable&) { return false; }
inline void SetYnnParams(YnnParams*, xla::cpu::Thunk::ExecuteParams*) {}
// The thunks of these versions find both in the parameters of custom calls and collectives.
inline void SetRun(int64_t, int64_t, xla::cpu::Thunk::ExecuteParams*) {}

#endif

// Runs the tasks of thunks. XLA before 2.21 asks which of its threads the caller is on.
class TaskRunner : public xla::cpu::Thunk::TaskRunner {
 public:
#if TF_TPU_EXT_TENSORFLOW_MINOR >= 21
  virtual std::optional<int64_t> current_worker_id() const = 0;
#endif
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_ABI_XLA_THUNK_PARAMS_H_
