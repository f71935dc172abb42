#include "cc/transfer/host_threads.h"

#include <utility>

#include "cc/base/core_threads.h"
#include "tensorflow/core/platform/cpu_info.h"

namespace tf_tpu_ext {
namespace {

// More than the largest machine has cores, each with some blocked ops.
constexpr int kMaxThreads = 16384;

CoreThreads& Threads() {
  static auto* const threads = [] {
    CoreThreads::Options options;
    options.usual_threads = tensorflow::port::MaxParallelism();
    options.max_threads = kMaxThreads;
    return new CoreThreads(options);
  }();
  return *threads;
}

}  // namespace

void HostThreads::Schedule(std::function<void()> work) { Threads().Schedule(std::move(work)); }

void HostThreads::ScheduleAfterCurrent(std::function<void()> work) {
  Threads().ScheduleAfterCurrent(std::move(work));
}

void HostThreads::ScheduleSoon(std::function<void()> work) {
  Threads().ScheduleSoon(std::move(work));
}

}  // namespace tf_tpu_ext
