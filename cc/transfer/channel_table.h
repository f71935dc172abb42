// Queues between running programs and the host. No thread is blocked: a receiver leaves a callback,
// and so does a sender that finds a bounded queue full.
#ifndef TF_TPU_EXT_CC_TRANSFER_CHANNEL_TABLE_H_
#define TF_TPU_EXT_CC_TRANSFER_CHANNEL_TABLE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

namespace tf_tpu_ext {

// Infeed and outfeed belong to a core, not to a launch.
inline constexpr int64_t kNoLaunch = 0;

struct ChannelKey {
  int64_t launch_id = kNoLaunch;
  std::string name;
  // A physical core for infeed and outfeed, otherwise a slot of the launch's program.
  int place = 0;

  friend bool operator<(const ChannelKey& a, const ChannelKey& b) {
    return std::tie(a.launch_id, a.name, a.place) < std::tie(b.launch_id, b.name, b.place);
  }
  std::string DebugString() const {
    return launch_id == kNoLaunch
               ? absl::StrCat("the ", name, " of core ", place)
               : absl::StrCat("channel '", name, "' of core ", place, " of launch ", launch_id);
  }
};

// Thread-safe. Each callback is called exactly once, without the lock, on the thread of the call
// that ends its wait, so callbacks may themselves send and receive.
template <typename Message>
class ChannelTable {
 public:
  using WaitId = int64_t;
  using Received = std::function<void(absl::StatusOr<Message>)>;
  using Sent = std::function<void(absl::Status)>;

  static constexpr int kUnbounded = 0;

  // Sends a message. `sent` is called once the channel has room for it, which is at once if
  // `capacity` is kUnbounded. Returns a number for Cancel. `owner` is the launch whose abort ends
  // the wait and drops the message, even on a channel that does not belong to the launch.
  WaitId Send(const ChannelKey& key, Message message, int capacity, Sent sent,
              int64_t owner = kNoLaunch) {
    Received receiver;
    std::optional<Message> direct;
    absl::Status refused;
    WaitId id;
    {
      absl::MutexLock lock(&mutex_);
      id = next_id_++;
      if (const absl::Status* aborted = FindAborted(key.launch_id, owner); aborted != nullptr) {
        refused = *aborted;
      } else {
        Channel& channel = channels_[key];
        if (!channel.receivers.empty()) {
          receiver = std::move(channel.receivers.front().received);
          direct = std::move(message);
          channel.receivers.pop_front();
          EraseIfEmpty(key);
        } else if (capacity != kUnbounded &&
                   static_cast<int>(channel.messages.size()) >= capacity) {
          channel.senders.push_back({id, owner, std::move(message), std::move(sent)});
          return id;
        } else {
          channel.messages.push_back({owner, std::move(message)});
        }
      }
    }
    if (receiver) receiver(*std::move(direct));
    sent(refused);
    return id;
  }

  // Calls `received` with the next message. Returns a number for Cancel; for `owner`, see Send.
  WaitId Receive(const ChannelKey& key, Received received, int64_t owner = kNoLaunch) {
    absl::StatusOr<Message> message = absl::UnavailableError("");
    Sent sent;
    WaitId id;
    {
      absl::MutexLock lock(&mutex_);
      id = next_id_++;
      if (const absl::Status* aborted = FindAborted(key.launch_id, owner); aborted != nullptr) {
        message = *aborted;
      } else {
        Channel& channel = channels_[key];
        if (channel.messages.empty()) {
          channel.receivers.push_back({id, owner, std::move(received)});
          return id;
        }
        message = std::move(channel.messages.front().message);
        channel.messages.pop_front();
        if (!channel.senders.empty()) {
          Sender& next = channel.senders.front();
          channel.messages.push_back({next.owner, std::move(next.message)});
          sent = std::move(next.sent);
          channel.senders.pop_front();
        }
        EraseIfEmpty(key);
      }
    }
    if (sent) sent(absl::OkStatus());
    received(std::move(message));
    return id;
  }

  // Ends a wait with `status`; returns false if it is already over.
  bool Cancel(const ChannelKey& key, WaitId id, const absl::Status& status) {
    Received received;
    Sent sent;
    {
      absl::MutexLock lock(&mutex_);
      auto found = channels_.find(key);
      if (found == channels_.end()) return false;
      Channel& channel = found->second;
      for (auto it = channel.receivers.begin(); it != channel.receivers.end(); ++it) {
        if (it->id != id) continue;
        received = std::move(it->received);
        channel.receivers.erase(it);
        break;
      }
      for (auto it = channel.senders.begin(); it != channel.senders.end(); ++it) {
        if (it->id != id) continue;
        sent = std::move(it->sent);
        channel.senders.erase(it);
        break;
      }
      EraseIfEmpty(key);
    }
    if (received) received(status);
    if (sent) sent(status);
    return received || sent;
  }

  // Drops the messages of a channel, including those that wait for room, whose senders are told
  // that they were sent. Receivers keep waiting. Returns the number of messages.
  int Drain(const ChannelKey& key) {
    std::deque<Unread> messages;
    std::deque<Sender> senders;
    {
      absl::MutexLock lock(&mutex_);
      auto found = channels_.find(key);
      if (found == channels_.end()) return 0;
      messages.swap(found->second.messages);
      senders.swap(found->second.senders);
      EraseIfEmpty(key);
    }
    for (Sender& sender : senders) sender.sent(absl::OkStatus());
    return static_cast<int>(messages.size() + senders.size());
  }

  // Fails all waits of the launch, from now until Forget, and drops its messages.
  void Abort(int64_t launch_id, const absl::Status& status) {
    std::vector<Channel> dropped;
    std::vector<Sent> admitted;
    {
      absl::MutexLock lock(&mutex_);
      aborted_.try_emplace(launch_id, status);
      TakeChannels(launch_id, &dropped);
      TakeFromCores(launch_id, &dropped, &admitted);
    }
    Fail(dropped, status);
    for (Sent& sent : admitted) sent(absl::OkStatus());
  }

  // Drops what is left of the launch.
  void Forget(int64_t launch_id, const absl::Status& status) {
    std::vector<Channel> dropped;
    {
      absl::MutexLock lock(&mutex_);
      aborted_.erase(launch_id);
      TakeChannels(launch_id, &dropped);
    }
    Fail(dropped, status);
  }

  // Whether the launch has neither waits nor unread messages.
  bool IsIdle(int64_t launch_id) const {
    absl::MutexLock lock(&mutex_);
    auto it = channels_.lower_bound({launch_id, "", -1});
    return it == channels_.end() || it->first.launch_id != launch_id;
  }

 private:
  struct Unread {
    int64_t owner;
    Message message;
  };
  struct Receiver {
    WaitId id;
    int64_t owner;
    Received received;
  };
  struct Sender {
    WaitId id;
    int64_t owner;
    Message message;
    Sent sent;
  };
  // Receivers wait only while there are no messages, and senders only while the channel is full.
  // All are served in the order in which they came.
  struct Channel {
    std::deque<Unread> messages;
    std::deque<Receiver> receivers;
    std::deque<Sender> senders;
  };

  void EraseIfEmpty(const ChannelKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    auto found = channels_.find(key);
    if (found != channels_.end() && found->second.messages.empty() &&
        found->second.receivers.empty() && found->second.senders.empty()) {
      channels_.erase(found);
    }
  }

  void TakeChannels(int64_t launch_id, std::vector<Channel>* taken)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (auto it = channels_.lower_bound({launch_id, "", -1});
         it != channels_.end() && it->first.launch_id == launch_id;) {
      taken->push_back(std::move(it->second));
      it = channels_.erase(it);
    }
  }

  // Takes the waits and messages that the launch has on channels of cores; admits senders that
  // waited for that room.
  void TakeFromCores(int64_t launch_id, std::vector<Channel>* taken, std::vector<Sent>* admitted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Channel owned;
    const auto take = [launch_id](auto& from, auto& to) {
      for (auto it = from.begin(); it != from.end();) {
        if (it->owner != launch_id) {
          ++it;
          continue;
        }
        to.push_back(std::move(*it));
        it = from.erase(it);
      }
    };
    for (auto it = channels_.lower_bound({kNoLaunch, "", -1});
         it != channels_.end() && it->first.launch_id == kNoLaunch;) {
      Channel& channel = it->second;
      const size_t unread = channel.messages.size();
      take(channel.messages, owned.messages);
      take(channel.receivers, owned.receivers);
      take(channel.senders, owned.senders);
      while (channel.messages.size() < unread && !channel.senders.empty()) {
        Sender& next = channel.senders.front();
        channel.messages.push_back({next.owner, std::move(next.message)});
        admitted->push_back(std::move(next.sent));
        channel.senders.pop_front();
      }
      const bool empty =
          channel.messages.empty() && channel.receivers.empty() && channel.senders.empty();
      it = empty ? channels_.erase(it) : std::next(it);
    }
    taken->push_back(std::move(owned));
  }

  const absl::Status* FindAborted(int64_t launch_id, int64_t owner) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (int64_t launch : {launch_id, owner}) {
      auto aborted = aborted_.find(launch);
      if (aborted != aborted_.end()) return &aborted->second;
    }
    return nullptr;
  }

  static void Fail(std::vector<Channel>& channels, const absl::Status& status) {
    for (Channel& channel : channels) {
      for (Receiver& receiver : channel.receivers) receiver.received(status);
      for (Sender& sender : channel.senders) sender.sent(status);
    }
  }

  mutable absl::Mutex mutex_;
  WaitId next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  // Contains only non-empty channels, so that the map does not keep growing. The key's order keeps
  // the channels of a launch together.
  std::map<ChannelKey, Channel> channels_ ABSL_GUARDED_BY(mutex_);
  // By launch or owner, until Forget: cores of the launch may still come. Never contains kNoLaunch.
  std::map<int64_t, absl::Status> aborted_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_TRANSFER_CHANNEL_TABLE_H_
