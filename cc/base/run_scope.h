// Tells a profile which run the current thread is computing for.
#ifndef TF_TPU_EXT_CC_BASE_RUN_SCOPE_H_
#define TF_TPU_EXT_CC_BASE_RUN_SCOPE_H_

#include <optional>

#include "cc/abi/xla/thunks_name_run.h"
#include "cc/base/core_numbers.h"
#include "cc/base/launch_numbers.h"
#include "tsl/profiler/lib/traceme.h"
#include "tsl/profiler/lib/traceme_encode.h"

namespace tf_tpu_ext {

// Needed wherever a thread starts a program or goes on with it, if XLA's own events of ops don't
// name their run: cc/profile/thunk_events.h takes it from the innermost scope on the same thread.
class RunScope {
 public:
  static constexpr char kEvent[] = "TPU run";

  RunScope(RunId run_id, Core core_in_pod) {
    if constexpr (!kThunksNameRun) {
      event_.emplace([&] {
        return tsl::profiler::TraceMeEncode(
            kEvent, {{"run_id", run_id.value()}, {"device_ordinal", core_in_pod.value()}});
      });
    }
  }

 private:
  std::optional<tsl::profiler::TraceMe> event_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_RUN_SCOPE_H_
