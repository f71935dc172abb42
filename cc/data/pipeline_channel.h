// One iteration over a pipeline in one of its processes: a socket, and slots for elements.
#ifndef TF_TPU_EXT_CC_DATA_PIPELINE_CHANNEL_H_
#define TF_TPU_EXT_CC_DATA_PIPELINE_CHANNEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cc/data/element_slots.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {

// What arrives from the other process.
struct Received {
  enum Kind { kNothingYet, kElement, kEnd, kError, kGone } kind = kNothingYet;
  std::vector<tensorflow::Tensor> element;
  std::string error;
};

// Not thread-safe.
class PipelineChannel {
 public:
  // Asks the process at the other end of `requests` for an iteration. Iterations of one program
  // with the same number share a tf.data service job.
  static absl::StatusOr<std::unique_ptr<PipelineChannel>> Open(int requests, int64_t iteration);

  // Ends the iteration there. Tensors that refer to slots stay valid.
  ~PipelineChannel();
  PipelineChannel(const PipelineChannel&) = delete;

  // Takes what has arrived, without waiting.
  absl::StatusOr<Received> Receive();

  // Whether nothing more will arrive.
  bool ended() const { return ended_; }
  // Becomes readable when something has arrived.
  int socket() const { return slots_->socket(); }

 private:
  explicit PipelineChannel(std::shared_ptr<ElementSlots> slots) : slots_(std::move(slots)) {}

  const std::shared_ptr<ElementSlots> slots_;
  bool ended_ = false;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_DATA_PIPELINE_CHANNEL_H_
