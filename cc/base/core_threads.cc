#include "cc/base/core_threads.h"

#include <utility>

#include "absl/time/clock.h"
#include "cc/base/float_mode.h"

namespace tf_tpu_ext {
namespace {

// For how many rounds after work that is not urgent the watching thread expects more: while it
// looks often, nobody has to wake it.
constexpr int kQuickRounds = 10;

struct ThreadPlace {
  CoreThreads* threads = nullptr;
  int id = -1;
};

thread_local ThreadPlace place;

}  // namespace

CoreThreads::CoreThreads(const Options& options) : options_(options) {}

CoreThreads::~CoreThreads() {
  std::vector<std::unique_ptr<tensorflow::Thread>> threads;
  {
    absl::MutexLock lock(&mutex_);
    const auto finished = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !HasQueued() && working_ == 0;
    };
    mutex_.Await(absl::Condition(&finished));
    stopping_ = true;
    work_added_.SignalAll();
    watch_.SignalAll();
    threads.swap(threads_);
  }
  // A Thread's destructor waits for the thread to end.
  threads.clear();
}

void CoreThreads::Schedule(std::function<void()> work) {
  absl::MutexLock lock(&mutex_);
  queue_.push_back(std::move(work));
  if (working_ < options_.usual_threads || absl::Now() < generous_until_) {
    AddWorker();
  } else {
    WatchProgress();
  }
}

void CoreThreads::ScheduleAfterCurrent(std::function<void()> work) {
  if (CurrentThreadId() < 0) {
    Schedule(std::move(work));
    return;
  }
  absl::MutexLock lock(&mutex_);
  continued_.push_back(std::move(work));
  WatchProgress();
}

void CoreThreads::ScheduleSoon(std::function<void()> work) {
  absl::MutexLock lock(&mutex_);
  queue_.push_back(std::move(work));
  if (watching_ && quick_rounds_ == 0) watch_.Signal();
  quick_rounds_ = kQuickRounds;
  WatchProgress();
}

void CoreThreads::WatchProgress() {
  if (watching_) return;
  watching_ = true;
  if (!has_watcher_) {
    has_watcher_ = true;
    StartThread("tpu_core_watch", [this] { Watch(); });
  }
  watch_.Signal();
}

CoreThreads* CoreThreads::OfCaller() { return place.threads; }

int CoreThreads::CurrentThreadId() const { return place.threads == this ? place.id : -1; }

void CoreThreads::StartThread(const char* name, std::function<void()> body) {
  threads_.emplace_back(
      tensorflow::Env::Default()->StartThread(tensorflow::ThreadOptions(), name, std::move(body)));
}

void CoreThreads::AddWorker() {
  if (idle_ > 0) {
    --idle_;
    ++wakes_;
    work_added_.Signal();
  } else if (workers_ < options_.max_threads) {
    const int id = workers_++;
    StartThread("tpu_core", [this, id] { Work(id); });
  } else {
    return;
  }
  ++working_;
}

void CoreThreads::Work(int id) {
  place = {this, id};
  const TensorFlowFloatMode float_mode;
  // Locked by hand: a thread whose work calls Python while Python shuts down is unwound from there,
  // when it does not hold the lock.
  mutex_.Lock();
  while (true) {
    while (HasQueued()) {
      std::function<void()> work;
      if (!continued_.empty()) {
        work = std::move(continued_.back());
        continued_.pop_back();
        ++continued_begun_;
      } else {
        work = std::move(queue_.front());
        queue_.pop_front();
        ++queue_begun_;
      }
      mutex_.Unlock();
      work();
      // Destroying what the work holds may block too.
      work = nullptr;
      mutex_.Lock();
    }
    --working_;
    ++idle_;
    while (wakes_ == 0 && !stopping_) work_added_.Wait(&mutex_);
    if (wakes_ == 0) break;
    --wakes_;
  }
  mutex_.Unlock();
}

void CoreThreads::Watch() {
  absl::MutexLock lock(&mutex_);
  int64_t queue_begun = 0, continued_begun = 0;
  absl::Time progressed;
  const auto note_progress = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    queue_begun = queue_begun_;
    continued_begun = continued_begun_;
    progressed = absl::Now();
  };
  note_progress();
  while (!stopping_) {
    if (!watching_) {
      watch_.Wait(&mutex_);
      note_progress();
      continue;
    }
    watch_.WaitWithTimeout(&mutex_, quick_rounds_ > 0 ? options_.delay : options_.patience);
    if (quick_rounds_ > 0) --quick_rounds_;
    const bool stuck = (!queue_.empty() && queue_begun == queue_begun_) ||
                       (!continued_.empty() && continued_begun == continued_begun_);
    if (!stuck) note_progress();
    if (!HasQueued()) {
      watching_ = quick_rounds_ > 0;
    } else if (working_ < options_.usual_threads && (stuck || quick_rounds_ > 0)) {
      AddWorker();
    } else if (stuck && absl::Now() - progressed >= options_.patience) {
      generous_until_ = absl::Now() + options_.generosity;
      for (size_t left = queue_.size() + continued_.size(); left > 0; --left) AddWorker();
      note_progress();
    }
  }
}

}  // namespace tf_tpu_ext
