#include "cc/runtime/host_watch.h"

#include <atomic>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

namespace tf_tpu_ext {

class HostWatch::Watch : public std::enable_shared_from_this<Watch> {
 public:
  Watch(HostWatch* owner, std::shared_ptr<HostLinks> links, Lost lost)
      : owner_(*owner), links_(std::move(links)), lost_(std::move(lost)) {}

  ~Watch() {
    absl::MutexLock lock(&mutex_);
    owner_.monitor_.End(wait_);
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // To be called once.
  void Begin() {
    silent_ = owner_.endpoints_.Listen([weak = weak_from_this()](const std::string& task) {
      if (std::shared_ptr<Watch> watch = weak.lock()) watch->Silent(task);
    });
    Wait();
  }

 private:
  // Asks when half of the limit has passed, and waits for the other half for an answer.
  void Wait() {
    absl::MutexLock lock(&mutex_);
    wait_ = owner_.monitor_.Begin([weak = weak_from_this()](absl::Duration) {
      if (std::shared_ptr<Watch> watch = weak.lock()) watch->Ask();
    });
  }

  void Silent(const std::string& task) {
    for (Host host : links_->others()) {
      if (links_->NameOf(host) == task) Tell(host, absl::DeadlineExceededError("it is silent"));
    }
  }

  void Ask() {
    const std::set<Host> others = links_->others();
    missing_ = static_cast<int>(others.size());
    for (Host host : others) {
      links_->CheckHealth(host, owner_.limit_() / 2,
                          [weak = weak_from_this(), host](const absl::Status& health) {
                            if (std::shared_ptr<Watch> watch = weak.lock()) {
                              watch->Answered(host, health);
                            }
                          });
    }
  }

  void Answered(Host host, const absl::Status& health) {
    if (health.ok()) {
      if (missing_.fetch_sub(1) == 1) Wait();
      return;
    }
    Tell(host, health);
  }

  void Tell(Host host, const absl::Status& health) {
    if (told_.exchange(true)) return;
    lost_(absl::UnavailableError(absl::StrCat(
        links_->NameOf(host), " has given no sign of life for ",
        absl::FormatDuration(owner_.limit_()), ", or is another process now: ", health.message(),
        ". When it is back, connect to the workers again and restore a checkpoint. "
        "tf_tpu_ext.configure(host_limit_seconds=...), or TF_TPU_EXT_HOST_LIMIT_SECONDS, sets "
        "for a worker how long it waits.")));
  }

  HostWatch& owner_;
  const std::shared_ptr<HostLinks> links_;
  const Lost lost_;
  std::atomic<int> missing_{0};
  std::atomic<bool> told_{false};
  std::shared_ptr<const Endpoints::Silent> silent_;
  absl::Mutex mutex_;
  WaitMonitor::WaitId wait_ ABSL_GUARDED_BY(mutex_) = 0;
};

HostWatch::HostWatch(std::function<absl::Duration()> limit, Endpoints* endpoints,
                     std::function<void(std::function<void()>)> run)
    : limit_(std::move(limit)),
      endpoints_(*endpoints),
      monitor_([this] { return limit_() / 2; }, std::move(run)) {}

std::shared_ptr<HostWatch::Watch> HostWatch::Begin(std::shared_ptr<HostLinks> links, Lost lost) {
  auto watch = std::make_shared<Watch>(this, std::move(links), std::move(lost));
  watch->Begin();
  return watch;
}

}  // namespace tf_tpu_ext
