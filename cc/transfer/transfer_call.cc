// The handler of the transfer custom call.
#include "cc/transfer/transfer_call.h"

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cc/base/core_context.h"
#include "cc/base/custom_call.h"
#include "cc/base/tensor_copy.h"
#include "cc/transfer/channel_wait.h"
#include "cc/transfer/channels.h"
#include "cc/transfer/host_calls.h"
#include "cc/transfer/transfer_stats.h"
#include "tensorflow/core/framework/tensor.h"
#include "xla/ffi/api/c_api.h"
#include "xla/ffi/api/c_api_internal.h"
#include "xla/ffi/execution_context.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::DataType;
using tensorflow::Tensor;
using tensorflow::TensorShape;

struct ResultBuffer {
  void* data;
  DataType type;
  TensorShape shape;
};

// Reads the operands, cut to their true sizes: as copies, or, if the caller is done with them
// before the program goes on, in place where they lie right for that.
absl::StatusOr<std::vector<Tensor>> ReadOperands(const XLA_FFI_Args& args,
                                                 const std::string& dynamic, bool borrow) {
  absl::InlinedVector<const XLA_FFI_Buffer*, 8> buffers;
  for (int64_t i = 0; i < args.size; ++i) {
    const auto* buffer = static_cast<const XLA_FFI_Buffer*>(args.args[i]);
    if (buffer->dtype != XLA_FFI_DataType_TOKEN) buffers.push_back(buffer);
  }
  std::vector<std::string> sizes;
  if (!dynamic.empty()) sizes = absl::StrSplit(dynamic, ',', absl::SkipEmpty());
  const size_t inputs = buffers.size() - sizes.size();
  absl::InlinedVector<TensorShape, 4> shapes;
  for (size_t i = 0; i < inputs; ++i) shapes.push_back(ShapeOf(*buffers[i]));
  for (size_t i = 0; i < sizes.size(); ++i) {
    const std::pair<std::string, std::string> place = absl::StrSplit(sizes[i], ':');
    int input, dimension;
    if (!absl::SimpleAtoi(place.first, &input) || !absl::SimpleAtoi(place.second, &dimension) ||
        input >= static_cast<int>(inputs)) {
      return absl::InternalError(absl::StrCat("Malformed transfer attribute: dynamic=", dynamic));
    }
    int32_t size;
    std::memcpy(&size, buffers[inputs + i]->data, sizeof(size));
    shapes[input].set_dim(dimension, size);
  }
  std::vector<Tensor> tensors;
  tensors.reserve(inputs);
  for (size_t i = 0; i < inputs; ++i) {
    const DataType type = ToTensorFlowType(buffers[i]->dtype);
    if (borrow && IsAlignedForKernels(buffers[i]->data) && shapes[i] == ShapeOf(*buffers[i])) {
      tensors.push_back(Borrow(*buffers[i]));
      continue;
    }
    Tensor tensor(type, shapes[i]);
    CopyLeadingBlock(buffers[i]->data, ShapeOf(*buffers[i]), &tensor);
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

absl::Status WriteResults(const std::vector<ResultBuffer>& results,
                          const std::vector<Tensor>& tensors, const std::string& op) {
  if (results.size() != tensors.size()) {
    return absl::InvalidArgumentError(absl::StrCat("Op ", op, " gets ", tensors.size(),
                                                   " tensors from the host; the compiled program "
                                                   "expects ",
                                                   results.size(), "."));
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const ResultBuffer& result = results[i];
    if (tensors[i].dtype() != result.type || tensors[i].shape() != result.shape) {
      return absl::InvalidArgumentError(absl::StrCat(
          "Tensor ", i, " from the host for op ", op, " is ",
          tensorflow::DataTypeString(tensors[i].dtype()), tensors[i].shape().DebugString(),
          "; the compiled program expects ", tensorflow::DataTypeString(result.type),
          result.shape.DebugString(), ". Return the type and shape that tracing saw."));
    }
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const size_t bytes = tensors[i].TotalBytes();
    if (bytes > 0) std::memcpy(results[i].data, tensors[i].data(), bytes);
  }
  return absl::OkStatus();
}

ChannelKey KeyOf(const std::string& name, const CoreContext& core, int64_t member) {
  if (name != kInfeedName && name != kOutfeedName) return {core.launch_id, name, core.slot};
  const bool of_group = member >= 0 && core.group_cores != nullptr;
  return {kNoLaunch, name, of_group ? core.group_cores[member] : core.core};
}

std::vector<ResultBuffer> ResultsOf(const XLA_FFI_Rets& returned) {
  std::vector<ResultBuffer> results;
  for (int64_t i = 0; i < returned.size; ++i) {
    const auto* buffer = static_cast<const XLA_FFI_Buffer*>(returned.rets[i]);
    if (buffer->dtype == XLA_FFI_DataType_TOKEN) continue;
    results.push_back({buffer->data, ToTensorFlowType(buffer->dtype), ShapeOf(*buffer)});
  }
  return results;
}

// Calls a function of the host.
XLA_FFI_Error* CallFunction(XLA_FFI_CallFrame* frame, HostCalls* calls, int function) {
  const XLA_FFI_Api* api = frame->api;
  const absl::Time began = absl::Now();
  std::vector<ResultBuffer> results = ResultsOf(frame->rets);
  const bool now = !results.empty() && calls->MayRunNow(function);
  auto inputs = ReadOperands(frame->args, StringAttribute(frame->attrs, kTransferDynamic), now);
  if (!inputs.ok()) return MakeError(api, inputs.status());
  if (now) {
    std::vector<Tensor> outputs;
    absl::Status status = calls->RunNow(function, *inputs, &outputs);
    if (status.ok()) {
      status = WriteResults(results, outputs, StringAttribute(frame->attrs, kTransferOp));
    }
    return status.ok() ? nullptr : MakeError(api, status);
  }
  if (results.empty()) {
    calls->Start(function, *std::move(inputs), nullptr);
    calls->CountSending(function, absl::Now() - began);
    return nullptr;
  }
  std::shared_ptr<Completion> completion;
  if (XLA_FFI_Error* error = Completion::Create(frame, &completion)) return error;
  std::string op = StringAttribute(frame->attrs, kTransferOp);
  calls->Start(
      function, *std::move(inputs),
      [completion, results = std::move(results),
       op](const absl::StatusOr<std::vector<Tensor>>& outputs) {
        completion->Complete(outputs.ok() ? WriteResults(results, *outputs, op) : outputs.status());
      });
  return nullptr;
}

// Counts a transfer of a cluster that runs in the host graph. Infeed and outfeed are none.
class TransferCount {
 public:
  TransferCount(const XLA_FFI_Attrs& attributes, const std::string& op, const std::string& channel)
      : began_(absl::Now()) {
    if (channel == kInfeedName || channel == kOutfeedName) return;
    const std::string counted_as = StringAttribute(attributes, kTransferCountedAs);
    counters_ = CountersOf(counted_as.empty() ? op : counted_as);
    counts_call_ = IntegerAttribute(attributes, kTransferCountsCall) == 1;
    taken_ = std::make_shared<std::atomic<int64_t>>(0);
  }
  // Where the host tells when it takes the arguments; null for what is not counted.
  const std::shared_ptr<std::atomic<int64_t>>& taken() const { return taken_; }
  void ToHost(const std::vector<Tensor>& tensors) {
    if (counters_ == nullptr) return;
    if (counts_call_) counters_->calls.fetch_add(1, std::memory_order_relaxed);
    counters_->bytes_to_host.fetch_add(TotalBytes(tensors), std::memory_order_relaxed);
  }
  void ToDevice(const std::vector<Tensor>& tensors) {
    if (counters_ == nullptr) return;
    counters_->bytes_to_device.fetch_add(TotalBytes(tensors), std::memory_order_relaxed);
    const absl::Time now = absl::Now();
    counters_->waiting_nanoseconds.fetch_add(absl::ToInt64Nanoseconds(now - began_),
                                             std::memory_order_relaxed);
    if (const int64_t taken = taken_->load(); taken > 0) {
      counters_->running_nanoseconds.fetch_add(absl::ToUnixNanos(now) - taken,
                                               std::memory_order_relaxed);
    }
  }

 private:
  const absl::Time began_;
  std::shared_ptr<std::atomic<int64_t>> taken_;
  std::shared_ptr<ClusterCounters> counters_;
  bool counts_call_ = false;
};

XLA_FFI_Error* Execute(XLA_FFI_CallFrame* frame) {
  const XLA_FFI_Api* api = frame->api;
  auto* context = static_cast<const xla::ffi::ExecutionContext*>(
      api->internal_api->XLA_FFI_INTERNAL_ExecutionContext_Get(frame->ctx));
  absl::StatusOr<CoreContext*> core =
      context == nullptr ? absl::NotFoundError("") : context->Lookup<CoreContext>();
  const int64_t function = IntegerAttribute(frame->attrs, kTransferFunction);
  if (!core.ok() || (function >= 0 && (*core)->host_calls == nullptr)) {
    return MakeError(api, absl::FailedPreconditionError(
                              absl::StrCat("Op ", StringAttribute(frame->attrs, kTransferOp),
                                           " talks to the host and can run only in a TPU "
                                           "program.")));
  }
  if (function >= 0) return CallFunction(frame, (*core)->host_calls, static_cast<int>(function));
  const std::string op = StringAttribute(frame->attrs, kTransferOp);
  const std::string send = StringAttribute(frame->attrs, kTransferSend);
  const std::string receive = StringAttribute(frame->attrs, kTransferReceive);

  std::vector<ResultBuffer> results = ResultsOf(frame->rets);
  std::vector<Tensor> operands;
  if (!send.empty()) {
    auto read = ReadOperands(frame->args, StringAttribute(frame->attrs, kTransferDynamic),
                             /*borrow=*/false);
    if (!read.ok()) return MakeError(api, read.status());
    operands = *std::move(read);
  }

  TransferCount count(frame->attrs, op, receive.empty() ? send : receive);
  count.ToHost(operands);
  std::shared_ptr<Completion> completion;
  if (XLA_FFI_Error* error = Completion::Create(frame, &completion)) return error;
  const int64_t member = IntegerAttribute(frame->attrs, kTransferMember);
  const ChannelKey key = KeyOf(receive.empty() ? send : receive, **core, member);
  auto wait = std::make_shared<ChannelWait>(/*cancellation=*/nullptr, key, op);
  wait->Watch();
  if (receive.empty()) {
    const int capacity = send == kOutfeedName ? kFeedCapacity : TensorChannels::kUnbounded;
    wait->Began(GetChannels().Send(
        key, std::move(operands), capacity,
        [completion, wait](const absl::Status& status) {
          wait->Done();
          completion->Complete(status);
        },
        (*core)->launch_id));
    return nullptr;
  }
  // A cluster without inputs starts by itself on the host.
  if (!operands.empty()) {
    GetChannels().Send(KeyOf(send, **core, member), {std::move(operands), count.taken()},
                       TensorChannels::kUnbounded, [](const absl::Status&) {});
  }
  wait->Began(GetChannels().Receive(
      key,
      [completion, wait, results = std::move(results), op,
       count](absl::StatusOr<TensorMessage> message) mutable {
        wait->Done();
        if (message.ok()) count.ToDevice(message->tensors);
        completion->Complete(message.ok() ? WriteResults(results, message->tensors, op)
                                          : message.status());
      },
      (*core)->launch_id));
  return nullptr;
}

XLA_FFI_Error* Handler(XLA_FFI_CallFrame* frame) {
  return AnswersMetadata(frame) ? nullptr : Execute(frame);
}

[[maybe_unused]] const bool kRegistered = RegisterCustomCall(kTransferTarget, Handler);

}  // namespace
}  // namespace tf_tpu_ext
