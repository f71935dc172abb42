// One wait on a channel: ends with a message, with the step's cancellation or with the time limit.
#ifndef TF_TPU_EXT_CC_TRANSFER_CHANNEL_WAIT_H_
#define TF_TPU_EXT_CC_TRANSFER_CHANNEL_WAIT_H_

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "cc/base/process.h"
#include "cc/base/wait_monitor.h"
#include "cc/transfer/channels.h"
#include "tensorflow/core/framework/cancellation.h"

namespace tf_tpu_ext {

class ChannelWait : public std::enable_shared_from_this<ChannelWait> {
 public:
  // `cancellation` may be null; `op` names who waits.
  ChannelWait(const Process& process, tensorflow::CancellationManager* cancellation, ChannelKey key,
              std::string op);

  // To be called before the wait begins; false if the step is cancelled already.
  bool Watch();

  // Tells the channel's number for the wait, once it has one.
  void Began(TensorChannels::WaitId id);

  // To be called when the channel has called back. Does not wait for a cancellation under way,
  // which may be what made it call.
  void Done();

 private:
  void End(const absl::Status& status);

  TensorChannels& channels_;
  WaitMonitor& wait_monitor_;
  tensorflow::CancellationManager* const cancellation_;
  const ChannelKey key_;
  const std::string op_;
  tensorflow::CancellationToken token_ = 0;
  WaitMonitor::WaitId monitored_ = 0;
  absl::Mutex mutex_;
  TensorChannels::WaitId id_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_TRANSFER_CHANNEL_WAIT_H_
