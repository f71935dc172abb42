#include "cc/transfer/channel_wait.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "cc/base/after_cancellation.h"

namespace tf_tpu_ext {

ChannelWait::ChannelWait(const Process& process, tensorflow::CancellationManager* cancellation,
                         ChannelKey key, std::string op)
    : channels_(*process.channels),
      wait_monitor_(*process.wait_monitor),
      cancellation_(cancellation),
      key_(std::move(key)),
      op_(std::move(op)) {}

bool ChannelWait::Watch() {
  if (cancellation_ != nullptr) {
    token_ = cancellation_->get_cancellation_token();
    auto cancel = [self = shared_from_this()] {
      AfterCancellation(
          [self] { self->End(Cancelled(absl::StrCat("Op ", self->op_, " was cancelled."))); });
    };
    if (!cancellation_->RegisterCallback(token_, std::move(cancel))) return false;
  }
  monitored_ = wait_monitor_.Begin([weak = weak_from_this()](absl::Duration waited) {
    std::shared_ptr<ChannelWait> self = weak.lock();
    if (self == nullptr) return;
    self->End(absl::DeadlineExceededError(
        absl::StrCat("Op ", self->op_, " waited ", absl::FormatDuration(waited), " on ",
                     self->key_.DebugString(),
                     ". Find out why the other side does not serve it, or ", kRaiseWaitLimit)));
  });
  return true;
}

void ChannelWait::Began(TensorChannels::WaitId id) {
  absl::Status ended;
  {
    absl::MutexLock lock(&mutex_);
    id_ = id;
    ended = ended_;
  }
  if (!ended.ok()) channels_.Cancel(key_, id, ended);
}

void ChannelWait::Done() {
  wait_monitor_.End(monitored_);
  if (cancellation_ != nullptr) cancellation_->TryDeregisterCallback(token_);
}

void ChannelWait::End(const absl::Status& status) {
  TensorChannels::WaitId id;
  {
    absl::MutexLock lock(&mutex_);
    if (ended_.ok()) ended_ = status;
    id = id_;
  }
  if (id != 0) channels_.Cancel(key_, id, status);
}

}  // namespace tf_tpu_ext
