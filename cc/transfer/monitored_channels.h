// Waits on channels that always end: through the other side, the step's cancellation or the time
// limit.
#ifndef TF_TPU_EXT_CC_TRANSFER_MONITORED_CHANNELS_H_
#define TF_TPU_EXT_CC_TRANSFER_MONITORED_CHANNELS_H_

#include <cstdint>
#include <string>

#include "cc/base/wait_monitor.h"
#include "cc/transfer/channels.h"
#include "tensorflow/core/framework/cancellation.h"

namespace tf_tpu_ext {

// The sender or receiver.
struct ChannelUser {
  // How errors name it.
  std::string op;
  // See ChannelTable::Send.
  int64_t owner = kNoLaunch;
  // The cancellation of the step, for an op on the host; null in programs, whose launch is aborted
  // instead. It must live until the callback.
  tensorflow::CancellationManager* cancellation = nullptr;
};

// Thread-safe, and cheap to copy.
class MonitoredChannels {
 public:
  // Both arguments must outlive this object.
  MonitoredChannels(TensorChannels* channels, WaitMonitor* wait_monitor)
      : channels_(channels), wait_monitor_(wait_monitor) {}

  // As in ChannelTable. The callback is called exactly once: on this thread if there is nothing to
  // wait for, otherwise on the thread that ends the wait.
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
