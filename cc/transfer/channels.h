// The process's channels between programs and host, and what launches do to them.
#ifndef TF_TPU_EXT_CC_TRANSFER_CHANNELS_H_
#define TF_TPU_EXT_CC_TRANSFER_CHANNELS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cc/program/taken_queues.h"
#include "cc/transfer/channel_table.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {

struct TensorMessage {
  // Not explicit: most messages are no more than their tensors.
  TensorMessage(std::vector<tensorflow::Tensor> tensors = {},  // NOLINT
                std::shared_ptr<std::atomic<int64_t>> taken = nullptr)
      : tensors(std::move(tensors)), taken(std::move(taken)) {}

  std::vector<tensorflow::Tensor> tensors;
  // If not null, gets the time, in nanoseconds since 1970, at which the host took the message.
  std::shared_ptr<std::atomic<int64_t>> taken;
};

using TensorChannels = ChannelTable<TensorMessage>;

TensorChannels& GetChannels();

// Steps that a core's queues may run ahead of their reader.
inline constexpr int kFeedCapacity = 32;
inline constexpr char kInfeedName[] = "infeed";
inline constexpr char kOutfeedName[] = "outfeed";
inline constexpr char kEmbeddingName[] = "embedding batches";

// A program's cores have failed: whatever its transfers wait for will not come.
void AbortTransfers(int64_t launch_id, const absl::Status& status);

// The owner, see ChannelTable::Send, of what the host sends in a step of a session or a function.
int64_t OwnerOfStep(int64_t step_id);

// The step has failed: drops what it has sent to queues of cores, and refuses with `status` what it
// still sends.
void DropSentBy(int64_t step_id, const absl::Status& status);

// A program that takes from queues has failed in the step: what they hold for its cores, and what
// the step still sends, was meant for it and must not reach the next program. Senders of the step
// get `status`, the program's error. Embedding steps are steps of all cores, so all forget theirs.
void DropQueued(const TakenQueues& queues, absl::Span<const int> cores, int64_t step_id,
                const absl::Status& status);

// The TPU system starts anew or ends: nothing is queued on any core, and no embedding configured.
void DropAllQueued();

// The program's cores are done. The host may still read what they sent last.
void FinishTransfers(int64_t launch_id);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_TRANSFER_CHANNELS_H_
