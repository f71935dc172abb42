// The host's side of transfers: the ops that the bridge leaves in the host graph, infeed and
// outfeed.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cc/base/core_numbers.h"
#include "cc/base/process.h"
#include "cc/base/scalar_input.h"
#include "cc/device/virtual_device.h"
#include "cc/ops/op_names.h"
#include "cc/program/program_key.h"
#include "cc/runtime/pod_programs.h"
#include "cc/runtime/program.h"
#include "cc/transfer/channel_op.h"
#include "cc/transfer/channels.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/statusor.h"
#include "xla/tsl/platform/status.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// Transfers of outside compilation, keyed by the step's program key.
class HostTransferOp : public ChannelOp {
 public:
  explicit HostTransferOp(OpKernelConstruction* construction) : ChannelOp(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("key", &key_));
    ordinal_is_input_ = !construction->GetAttr("device_ordinal", &ordinal_).ok();
    if (!construction->HasAttr(kTransferTask)) return;
    int task = 0;
    OP_REQUIRES_OK(construction, construction->GetAttr(kTransferTask, &task));
    OP_REQUIRES(construction, construction->device()->parsed_name().task == task,
                absl::UnimplementedError(absl::StrCat(
                    "Outside compilation of a replica on task ", task, " is placed on ",
                    construction->device()->name(), ", with a resource that it uses (", name(),
                    "). Create the resource on the replica's own host, or use it outside of the "
                    "TPU computation.")));
  }

 protected:
  absl::Status KeyOf(OpKernelContext* context, ChannelKey* key) const {
    absl::StatusOr<ProgramKey> program =
        DecodeProgramKey(context->input(context->num_inputs() - 1 - ordinal_is_input_));
    // The compile op reports a failed compilation.
    TF_RETURN_IF_ERROR(tsl::StatusGroup::MakeDerived(program.status()));
    TF_ASSIGN_OR_RETURN(const Slot slot, SlotOf(context, *program));
    *key = {program->launch_id.value(), key_, slot.value()};
    return absl::OkStatus();
  }

  int NumPayloads(OpKernelContext* context) const {
    return context->num_inputs() - 1 - ordinal_is_input_;
  }

 private:
  // The input names a physical core; the attribute, a core of the only replica.
  absl::StatusOr<Slot> SlotOf(OpKernelContext* context, const ProgramKey& key) const {
    if (!ordinal_is_input_) return Slot(static_cast<int>(ordinal_));
    TF_ASSIGN_OR_RETURN(const FoundProgram found, FindProgram(key));
    TF_ASSIGN_OR_RETURN(const int64_t core,
                        ScalarInput<int64_t>(*context, context->input(context->num_inputs() - 1),
                                             "device_ordinal"));
    return found.program->SlotOfCore(Core(static_cast<int>(core)));
  }

  std::string key_;
  int64_t ordinal_ = 0;
  bool ordinal_is_input_ = false;
};

class RecvAtHostOp : public HostTransferOp {
 public:
  using HostTransferOp::HostTransferOp;
  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    ChannelKey key;
    if (absl::Status status = KeyOf(context, &key); !status.ok())
      return Fail(context, status, done);
    Receive(context, key, done);
  }
};

class SendFromHostOp : public HostTransferOp {
 public:
  using HostTransferOp::HostTransferOp;
  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    ChannelKey key;
    if (absl::Status status = KeyOf(context, &key); !status.ok())
      return Fail(context, status, done);
    std::vector<Tensor> message;
    for (int i = 0; i < NumPayloads(context); ++i) message.push_back(context->input(i));
    Send(context, key, TensorChannels::kUnbounded, std::move(message), done);
  }
};

class InfeedEnqueueOp : public FeedOp {
 public:
  using FeedOp::FeedOp;
  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    ChannelKey key;
    if (absl::Status status = KeyOf(context, kInfeedName, &key); !status.ok())
      return Fail(context, status, done);
    std::vector<Tensor> message;
    for (int i = 0; i < context->num_inputs(); ++i) message.push_back(context->input(i));
    Send(context, key, kFeedCapacity, std::move(message), done);
  }
};

class OutfeedDequeueOp : public FeedOp {
 public:
  using FeedOp::FeedOp;
  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    ChannelKey key;
    if (absl::Status status = KeyOf(context, kOutfeedName, &key); !status.ok())
      return Fail(context, status, done);
    Receive(context, key, done);
  }
};

REGISTER_KERNEL_BUILDER(Name("_XlaRecvAtHost").Device(tensorflow::DEVICE_CPU), RecvAtHostOp);
REGISTER_KERNEL_BUILDER(Name("_XlaRecvAtHostV2").Device(tensorflow::DEVICE_CPU), RecvAtHostOp);
REGISTER_KERNEL_BUILDER(Name("_XlaSendFromHost").Device(tensorflow::DEVICE_CPU), SendFromHostOp);
REGISTER_KERNEL_BUILDER(Name("_XlaSendFromHostV2").Device(tensorflow::DEVICE_CPU), SendFromHostOp);

#define REGISTER_FEED_KERNELS(device)                                                           \
  REGISTER_KERNEL_BUILDER(Name("InfeedEnqueue").Device(device), InfeedEnqueueOp);               \
  REGISTER_KERNEL_BUILDER(Name("InfeedEnqueueTuple").Device(device), InfeedEnqueueOp);          \
  REGISTER_KERNEL_BUILDER(Name("OutfeedDequeue").Device(device), OutfeedDequeueOp);             \
  REGISTER_KERNEL_BUILDER(Name("OutfeedDequeueTuple").Device(device), OutfeedDequeueOp);        \
  REGISTER_KERNEL_BUILDER(Name("OutfeedDequeueV2").Device(device).HostMemory("device_ordinal"), \
                          OutfeedDequeueOp);                                                    \
  REGISTER_KERNEL_BUILDER(                                                                      \
      Name("OutfeedDequeueTupleV2").Device(device).HostMemory("device_ordinal"), OutfeedDequeueOp)

REGISTER_FEED_KERNELS(tensorflow::DEVICE_CPU);
REGISTER_FEED_KERNELS(kTpuDeviceType);

}  // namespace
}  // namespace tf_tpu_ext
