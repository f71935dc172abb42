#include "cc/runtime/ynn_threads.h"

#include "cc/base/compute_pool.h"
#include "xla/executable_run_options.h"
#include "xla/tsl/platform/errors.h"

namespace tf_tpu_ext {

absl::StatusOr<YnnParams*> YnnThreads::Params() {
  absl::call_once(made_, [this] {
    xla::ExecutableRunOptions options;
    options.set_intra_op_thread_pool(pool_.EigenDevice());
    params_ = new absl::StatusOr<YnnParams>(MakeYnnParams(options));
  });
  TF_RETURN_IF_ERROR(params_->status());
  return &**params_;
}

}  // namespace tf_tpu_ext
