// Ops whose kernels send to channels or receive from them.
#ifndef TF_TPU_EXT_CC_TRANSFER_CHANNEL_OP_H_
#define TF_TPU_EXT_CC_TRANSFER_CHANNEL_OP_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "cc/transfer/channels.h"
#include "cc/transfer/monitored_channels.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_tpu_ext {

class ChannelOp : public tensorflow::AsyncOpKernel {
 public:
  explicit ChannelOp(tensorflow::OpKernelConstruction* construction);

 protected:
  // Makes the channel's next message the op's outputs.
  void Receive(tensorflow::OpKernelContext* context, const ChannelKey& key,
               const DoneCallback& done);

  // Completes once the channel has room. A message to a core's queue belongs to the step, see
  // OwnerOfStep.
  void Send(tensorflow::OpKernelContext* context, const ChannelKey& key, int capacity,
            std::vector<tensorflow::Tensor> message, const DoneCallback& done);

  // Fails the op. The step's program may never start, so this also drops what the step has sent to
  // queues of cores; otherwise the next step would get it.
  void Fail(tensorflow::OpKernelContext* context, const absl::Status& status,
            const DoneCallback& done) const;

 private:
  absl::Status SetOutputs(tensorflow::OpKernelContext* context,
                          const std::vector<tensorflow::Tensor>& message) const;

  const MonitoredChannels channels_;
};

// An op on a core's queue. The attribute device_ordinal, the last input, or the op's device names
// the core.
class FeedOp : public ChannelOp {
 public:
  explicit FeedOp(tensorflow::OpKernelConstruction* construction);

 protected:
  absl::Status KeyOf(tensorflow::OpKernelContext* context, const char* name, ChannelKey* key) const;

 private:
  int64_t ordinal_ = -1;
  bool ordinal_is_input_ = false;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_TRANSFER_CHANNEL_OP_H_
