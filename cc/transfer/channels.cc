#include "cc/transfer/channels.h"

#include <limits>

namespace tf_tpu_ext {

int64_t OwnerOfStep(int64_t step_id) {
  // Launches count up from one, so negative numbers are free.
  return -1 - (step_id & std::numeric_limits<int64_t>::max());
}

void TensorChannels::DropSentBy(int64_t step_id, const absl::Status& status) {
  const int64_t owner = OwnerOfStep(step_id);
  Abort(owner, status);
  Finish(owner);
}

void TensorChannels::Finish(int64_t launch_id) {
  int64_t forgotten = kNoLaunch;
  {
    absl::MutexLock lock(&finished_mutex_);
    const auto place = places_.find(launch_id);
    if (place != places_.end()) {
      // It has ended again, so it is now the last one.
      finished_.splice(finished_.end(), finished_, place->second);
      return;
    }
    places_.emplace(launch_id, finished_.insert(finished_.end(), launch_id));
    if (finished_.size() > kRememberedLaunches) {
      forgotten = finished_.front();
      places_.erase(forgotten);
      finished_.pop_front();
    }
  }
  if (forgotten == kNoLaunch) return;
  Forget(forgotten, absl::CancelledError("The TPU program ended long ago without this transfer."));
}

}  // namespace tf_tpu_ext
