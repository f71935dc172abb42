#include "cc/data/paced_loop.h"

#include <algorithm>
#include <memory>

#include "absl/synchronization/notification.h"

namespace tf_tpu_ext {

void RunPaced(tsl::CancellationManager& cancellation, absl::Duration first_pause,
              absl::Duration longest_pause, absl::FunctionRef<void()> work) {
  // IsCancelled() returns true only after the manager's callbacks have run: a loop that is woken by
  // a callback and then asks the manager may get false and go back to sleep. So the callback itself
  // delivers the cancellation. It may outlive this call, hence the shared pointer.
  auto cancelled = std::make_shared<absl::Notification>();
  if (!cancellation.RegisterCallback(cancellation.get_cancellation_token(),
                                     [cancelled] { cancelled->Notify(); })) {
    return;
  }
  absl::Duration pause = first_pause;
  do {
    work();
    if (cancelled->WaitForNotificationWithTimeout(std::min(pause, longest_pause))) return;
    pause = std::min(2 * pause, longest_pause);
  } while (true);
}

}  // namespace tf_tpu_ext
