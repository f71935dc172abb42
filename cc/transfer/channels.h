// Channels between programs and the host.
#ifndef TF_TPU_EXT_CC_TRANSFER_CHANNELS_H_
#define TF_TPU_EXT_CC_TRANSFER_CHANNELS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "cc/program/transfer_call.h"
#include "cc/transfer/channel_table.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {

struct TensorMessage {
  // Not explicit: most messages are nothing but their tensors.
  TensorMessage(std::vector<tensorflow::Tensor> tensors = {},  // NOLINT
                std::shared_ptr<std::atomic<int64_t>> taken = nullptr)
      : tensors(std::move(tensors)), taken(std::move(taken)) {}

  std::vector<tensorflow::Tensor> tensors;
  // If not null, is set to the time, in nanoseconds since 1970, at which the host took the message.
  std::shared_ptr<std::atomic<int64_t>> taken;
};

// Channels of tensors that remember the launches that ended most recently. Thread-safe; callbacks
// are called without its locks.
class TensorChannels : public ChannelTable<TensorMessage> {
 public:
  // Finished launches whose last messages or errors the host may still ask for.
  static constexpr size_t kRememberedLaunches = 4096;

  // The launch has ended. The host may still read what its cores sent last: what is left is
  // forgotten only when kRememberedLaunches others have ended after it. All iterations of a host
  // loop are one launch, so a launch may end repeatedly.
  void Finish(int64_t launch_id);

  // The step has failed: drops what it has sent to queues of cores, and rejects with `status` what
  // it still sends.
  void DropSentBy(int64_t step_id, const absl::Status& status);

 private:
  absl::Mutex finished_mutex_;
  // Each launch once, the one that ended last at the end.
  std::list<int64_t> finished_ ABSL_GUARDED_BY(finished_mutex_);
  std::map<int64_t, std::list<int64_t>::iterator> places_ ABSL_GUARDED_BY(finished_mutex_);
};

// How many steps a core's queues may run ahead of their reader.
inline constexpr int kFeedCapacity = 32;
inline constexpr char kEmbeddingName[] = "embedding batches";

// The owner (see ChannelTable::Send) of what the host sends in a step of a session or a function.
int64_t OwnerOfStep(int64_t step_id);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_TRANSFER_CHANNELS_H_
