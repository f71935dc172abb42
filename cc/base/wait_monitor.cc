#include "cc/base/wait_monitor.h"

#include <algorithm>

#include "absl/time/clock.h"

namespace tf_tpu_ext {
namespace {

// How late an expiry may be noticed. The thread looks at this interval, so that starting and ending
// a wait, which every step does, never has to wake it.
constexpr absl::Duration kResolution = absl::Milliseconds(200);

}  // namespace

WaitMonitor::WaitMonitor(std::function<absl::Duration()> limit,
                         std::function<void(std::function<void()>)> run)
    : limit_(std::move(limit)),
      run_(run != nullptr ? std::move(run) : [](const std::function<void()>& work) { work(); }) {}

WaitMonitor::~WaitMonitor() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

WaitMonitor::WaitId WaitMonitor::Begin(std::function<void(absl::Duration)> expired) {
  const absl::Duration limit = limit_();
  const absl::Time deadline = absl::Now() + limit;
  absl::MutexLock lock(&mutex_);
  if (!started_) {
    started_ = true;
    thread_ = std::thread([this] { Run(); });
  }
  const WaitId id = next_id_++;
  waits_.emplace(std::make_pair(deadline, id), Wait{limit, std::move(expired)});
  deadlines_.emplace(id, deadline);
  return id;
}

void WaitMonitor::End(WaitId id) {
  absl::MutexLock lock(&mutex_);
  auto deadline = deadlines_.find(id);
  if (deadline == deadlines_.end()) return;
  waits_.erase({deadline->second, id});
  deadlines_.erase(deadline);
}

void WaitMonitor::Run() {
  absl::MutexLock lock(&mutex_);
  while (!stopping_) {
    while (!waits_.empty() && waits_.begin()->first.first <= absl::Now()) {
      auto first = waits_.begin();
      Wait wait = std::move(first->second);
      deadlines_.erase(first->first.second);
      waits_.erase(first);
      mutex_.Unlock();
      run_([wait = std::move(wait)] { wait.expired(wait.limit); });
      mutex_.Lock();
    }
    mutex_.AwaitWithTimeout(absl::Condition(&stopping_), kResolution);
  }
}

}  // namespace tf_tpu_ext
