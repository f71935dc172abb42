#include "cc/transfer/channels.h"

#include <deque>

#include "absl/base/const_init.h"
#include "absl/synchronization/mutex.h"

namespace tf_tpu_ext {
namespace {

// Finished launches whose last messages or errors the host may still ask for.
constexpr size_t kRememberedLaunches = 4096;

absl::Mutex mutex(absl::kConstInit);

}  // namespace

TensorChannels& GetChannels() {
  static auto* channels = new TensorChannels;
  return *channels;
}

void AbortTransfers(int64_t launch_id, const absl::Status& status) {
  GetChannels().Abort(launch_id, status);
}

void FinishTransfers(int64_t launch_id) {
  static auto* finished = new std::deque<int64_t>;
  int64_t forgotten = kNoLaunch;
  {
    absl::MutexLock lock(&mutex);
    // The rounds of a host loop are one launch.
    if (finished->empty() || finished->back() != launch_id) finished->push_back(launch_id);
    if (finished->size() > kRememberedLaunches) {
      forgotten = finished->front();
      finished->pop_front();
    }
  }
  if (forgotten == kNoLaunch) return;
  GetChannels().Forget(forgotten, absl::CancelledError("The TPU program ended long ago without "
                                                       "this transfer."));
}

}  // namespace tf_tpu_ext
