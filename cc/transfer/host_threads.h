#ifndef TF_TPU_EXT_CC_TRANSFER_HOST_THREADS_H_
#define TF_TPU_EXT_CC_TRANSFER_HOST_THREADS_H_

#include <functional>

namespace tf_tpu_ext {

// Threads for functions of the host that may block, as many as are needed at once.
class HostThreads {
 public:
  static void Schedule(std::function<void()> work);
  // The same for a caller that is about to return: if it is one of these threads, it does the work
  // itself, which saves the time to wake another.
  static void ScheduleAfterCurrent(std::function<void()> work);
  // The same for work that may begin a little later, which saves the caller that time.
  static void ScheduleSoon(std::function<void()> work);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_TRANSFER_HOST_THREADS_H_
