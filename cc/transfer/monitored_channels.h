// Waits on channels that end in any case: with the other side, with the cancellation of the step or
// with the time limit.
#ifndef TF_TPU_EXT_CC_TRANSFER_MONITORED_CHANNELS_H_
#define TF_TPU_EXT_CC_TRANSFER_MONITORED_CHANNELS_H_

#include <cstdint>
#include <string>

#include "cc/base/wait_monitor.h"
#include "cc/transfer/channels.h"
#include "tensorflow/core/framework/cancellation.h"

namespace tf_tpu_ext {

// Who sends or receives.
struct ChannelUser {
  // What errors call it.
  std::string op;
  // See ChannelTable::Send.
  int64_t owner = kNoLaunch;
  // Of the step of an op on the host; null in programs, whose launch is aborted instead. It must
  // live until the callback.
  tensorflow::CancellationManager* cancellation = nullptr;
};

// Thread-safe, and cheap to copy.
class MonitoredChannels {
 public:
  // Both must live on.
  MonitoredChannels(TensorChannels* channels, WaitMonitor* wait_monitor)
      : channels_(channels), wait_monitor_(wait_monitor) {}

  // As in ChannelTable. The callback is called exactly once: on this thread if nothing has to be
  // waited for, else on the thread that ends the wait.
  void Receive(const ChannelKey& key, ChannelUser user, TensorChannels::Received received) const;
  void Send(const ChannelKey& key, TensorMessage message, int capacity, ChannelUser user,
            TensorChannels::Sent sent) const;

 private:
  class Wait;

  TensorChannels* channels_;
  WaitMonitor* wait_monitor_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_TRANSFER_MONITORED_CHANNELS_H_
