#include "cc/base/run_scope.h"

#include <utility>

#include "cc/abi/xla/thunks_name_run.h"
#include "tsl/profiler/lib/traceme_encode.h"

namespace tf_tpu_ext {

thread_local RunScope* RunScope::innermost = nullptr;

RunScope::RunScope(RunId run_id, Core core_in_pod) : run_id_(run_id), core_in_pod_(core_in_pod) {
  if constexpr (kThunksNameRun) return;
  if (!tsl::profiler::TraceMe::Active()) return;
  outer_ = std::exchange(innermost, this);
  event_.emplace([&] {
    return tsl::profiler::TraceMeEncode(
        kEvent, {{"run_id", run_id_.value()}, {"device_ordinal", core_in_pod_.value()}});
  });
}

RunScope::~RunScope() {
  if (event_.has_value()) innermost = outer_;
}

void RunScope::EndInnermost() {
  if (innermost == nullptr) return;
  RunScope* const ended = std::exchange(innermost, innermost->outer_);
  ended->event_.reset();
}

std::function<void()> RunScope::Extend(std::function<void()> work) {
  if (innermost == nullptr) return work;
  return [run_id = innermost->run_id_, core = innermost->core_in_pod_, work = std::move(work)] {
    const RunScope scope(run_id, core);
    work();
  };
}

}  // namespace tf_tpu_ext
