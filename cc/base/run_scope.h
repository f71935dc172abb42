// Tells a profile which run the current thread is computing for.
#ifndef TF_TPU_EXT_CC_BASE_RUN_SCOPE_H_
#define TF_TPU_EXT_CC_BASE_RUN_SCOPE_H_

#include <functional>
#include <optional>

#include "cc/base/core_numbers.h"
#include "cc/base/launch_numbers.h"
#include "tsl/profiler/lib/traceme.h"

namespace tf_tpu_ext {

// Needed wherever a thread starts a program or goes on with it, if XLA's own events of ops don't
// name their run: cc/profile/thunk_events.h takes it from the innermost scope on the same thread.
class RunScope {
 public:
  static constexpr char kEvent[] = "TPU run";

  RunScope(RunId run_id, Core core_in_pod);
  ~RunScope();
  RunScope(const RunScope&) = delete;
  RunScope& operator=(const RunScope&) = delete;

  // Ends the innermost scope of this thread early: what follows may end the profile, which has only
  // what ended before it.
  static void EndInnermost();

  // While a profile is taken, lets work for another thread have the scope of this one.
  static std::function<void()> Extend(std::function<void()> work);

 private:
  static thread_local RunScope* innermost;

  const RunId run_id_;
  const Core core_in_pod_;
  RunScope* outer_ = nullptr;
  std::optional<tsl::profiler::TraceMe> event_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_RUN_SCOPE_H_
