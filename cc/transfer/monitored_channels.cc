#include "cc/transfer/monitored_channels.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cc/base/after_cancellation.h"

namespace tf_tpu_ext {

// Shared by the channel's callback, the cancellation and the monitor. Whichever comes first ends
// the wait: the channel forgets a wait when it calls back, so Cancel finds none after that.
class MonitoredChannels::Wait : public std::enable_shared_from_this<Wait> {
 public:
  Wait(const MonitoredChannels& channels, const ChannelKey& key, ChannelUser user)
      : channels_(*channels.channels_),
        wait_monitor_(*channels.wait_monitor_),
        key_(key),
        user_(std::move(user)) {}

  // Call this before asking the channel, whose callback calls Done, possibly at once. Returns false
  // if the step has already been cancelled: nothing would call End then.
  bool Watch() {
    if (user_.cancellation != nullptr) {
      token_ = user_.cancellation->get_cancellation_token();
      auto cancel = [self = shared_from_this()] {
        AfterCancellation([self] { self->End(self->CancelledOp()); });
      };
      if (!user_.cancellation->RegisterCallback(token_, std::move(cancel))) return false;
    }
    monitored_ = wait_monitor_.Begin([weak = weak_from_this()](absl::Duration waited) {
      std::shared_ptr<Wait> self = weak.lock();
      if (self == nullptr) return;
      self->End(absl::DeadlineExceededError(
          absl::StrCat("Op ", self->user_.op, " waited ", absl::FormatDuration(waited), " on ",
                       self->key_.DebugString(),
                       ". Find out why the other side does not serve it, or ", kRaiseWaitLimit)));
    });
    return true;
  }

  // Call this instead of the functions below if Watch returns false.
  void Refuse(std::function<void(absl::Status)> refused) const {
    AfterCancellation([refused = std::move(refused), status = CancelledOp()] { refused(status); });
  }

  // Notes the channel's number for the wait, which may have ended in the meantime, in either way.
  void Began(TensorChannels::WaitId id) {
    absl::Status ended;
    {
      absl::MutexLock lock(&mutex_);
      id_ = id;
      ended = ended_;
    }
    if (!ended.ok()) channels_.Cancel(key_, id, ended);
  }

  // The channel has called back. Does not wait for a cancellation in progress, which may be what
  // made it call.
  void Done() {
    wait_monitor_.End(monitored_);
    if (user_.cancellation != nullptr) user_.cancellation->TryDeregisterCallback(token_);
  }

 private:
  absl::Status CancelledOp() const {
    return Cancelled(absl::StrCat("Op ", user_.op, " was cancelled."));
  }

  void End(const absl::Status& status) {
    TensorChannels::WaitId id;
    {
      absl::MutexLock lock(&mutex_);
      if (ended_.ok()) ended_ = status;
      id = id_;
    }
    // Without the lock: the channel calls back, which may lead back here.
    if (id != 0) channels_.Cancel(key_, id, status);
  }

  TensorChannels& channels_;
  WaitMonitor& wait_monitor_;
  const ChannelKey key_;
  const ChannelUser user_;
  // Written by Watch, before any other thread knows about them.
  tensorflow::CancellationToken token_ = 0;
  WaitMonitor::WaitId monitored_ = 0;

  absl::Mutex mutex_;
  // 0 until the channel has returned it. If the wait must end before that, `ended_` holds the
  // reason.
  TensorChannels::WaitId id_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
};

void MonitoredChannels::Receive(const ChannelKey& key, ChannelUser user,
                                TensorChannels::Received received) const {
  const int64_t owner = user.owner;
  const auto wait = std::make_shared<Wait>(*this, key, std::move(user));
  if (!wait->Watch()) return wait->Refuse(std::move(received));
  wait->Began(channels_->Receive(
      key,
      [wait, received = std::move(received)](absl::StatusOr<TensorMessage> message) {
        wait->Done();
        received(std::move(message));
      },
      owner));
}

void MonitoredChannels::Send(const ChannelKey& key, TensorMessage message, int capacity,
                             ChannelUser user, TensorChannels::Sent sent) const {
  const int64_t owner = user.owner;
  if (capacity == TensorChannels::kUnbounded) {
    channels_->Send(key, std::move(message), capacity, std::move(sent), owner);
    return;
  }
  const auto wait = std::make_shared<Wait>(*this, key, std::move(user));
  if (!wait->Watch()) return wait->Refuse(std::move(sent));
  wait->Began(channels_->Send(
      key, std::move(message), capacity,
      [wait, sent = std::move(sent)](const absl::Status& status) {
        wait->Done();
        sent(status);
      },
      owner));
}

}  // namespace tf_tpu_ext
