// How a running program sends tensors to channels and receives from them.
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cc/base/core_context.h"
#include "cc/base/core_numbers.h"
#include "cc/base/custom_call.h"
#include "cc/base/fault_points.h"
#include "cc/base/process.h"
#include "cc/profile/recorder.h"
#include "cc/program/transfer_call.h"
#include "cc/transfer/call_buffers.h"
#include "cc/transfer/channels.h"
#include "cc/transfer/host_order.h"
#include "cc/transfer/monitored_channels.h"
#include "cc/transfer/transfer_stats.h"
#include "tensorflow/core/framework/tensor.h"
#include "xla/ffi/api/c_api.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;

// Counts one transfer of a cluster that runs in the host graph.
class TransferCount {
 public:
  // `counters` are null for transfers that are not counted.
  TransferCount(std::shared_ptr<ClusterCounters> counters, bool counts_call)
      : began_(absl::Now()), counters_(std::move(counters)), counts_call_(counts_call) {
    if (counters_ != nullptr) taken_ = std::make_shared<std::atomic<int64_t>>(0);
  }

  // Where the host stores the time at which it takes the arguments; null for transfers that are not
  // counted.
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
  absl::Time began_;
  std::shared_ptr<ClusterCounters> counters_;
  bool counts_call_;
  std::shared_ptr<std::atomic<int64_t>> taken_;
};

class TransferCustomCall : public CustomCall {
 public:
  // `counters` are null for transfers that are not counted.
  TransferCustomCall(TransferCall call, MonitoredChannels channels,
                     std::shared_ptr<ClusterCounters> counters, ProfileRecorder* recorder)
      : call_(std::move(call)),
        channels_(channels),
        counters_(std::move(counters)),
        recorder_(recorder) {}

  absl::Status Execute(XLA_FFI_CallFrame* frame) const override {
    const CoreContext* core = CoreOf(*frame);
    if (core == nullptr) return NoTpuProgram(call_.op);
    TF_RETURN_IF_ERROR(FaultAt(FaultPoint::kTransfer));
    std::vector<Tensor> operands;
    if (!call_.send.empty()) {
      TF_ASSIGN_OR_RETURN(operands,
                          ReadOperands(frame->args, call_.dynamic, OperandMemory::kCopied));
    }
    TransferCount count(counters_, call_.counts_call);
    count.ToHost(operands);
    TF_ASSIGN_OR_RETURN(std::shared_ptr<Completion> completion, Completion::Create(frame));
    ProfiledWait wait(recorder_, Name(), core->run_id, core->core);
    if (RecordedWait* described = wait.wait()) described->bytes = TotalBytes(operands);
    if (core->host_order == nullptr) {
      Exchange(*core, std::move(operands), ResultsOf(frame->rets), std::move(completion),
               std::move(count), std::move(wait));
      return absl::OkStatus();
    }
    // The core's context and this object last until the call has completed.
    auto later = std::make_shared<ProfiledWait>(std::move(wait));
    core->host_order->Later(
        core->slot, [this, core, operands = std::move(operands), results = ResultsOf(frame->rets),
                     completion = std::move(completion), count, later]() mutable {
          Exchange(*core, std::move(operands), std::move(results), std::move(completion), count,
                   std::move(*later));
        });
    return absl::OkStatus();
  }

 private:
  void Exchange(const CoreContext& core, std::vector<Tensor> operands,
                std::vector<CallResult> results, std::shared_ptr<Completion> completion,
                TransferCount count, ProfiledWait wait) const {
    if (call_.receive.empty()) {
      return Send(core, std::move(operands), std::move(completion), std::move(wait));
    }
    // A cluster without inputs starts on its own on the host. The launch's abort rejects this send,
    // and is reported below.
    if (!operands.empty()) {
      channels_.Send(KeyOf(call_.send, core), {std::move(operands), count.taken()},
                     TensorChannels::kUnbounded, UserOn(core), [](const absl::Status&) {});
    }
    channels_.Receive(
        KeyOf(call_.receive, core), UserOn(core),
        [completion = std::move(completion), results = std::move(results), op = call_.op, count,
         wait = std::move(wait)](absl::StatusOr<TensorMessage> message) mutable {
          if (message.ok()) count.ToDevice(message->tensors);
          if (RecordedWait* described = wait.wait(); described && message.ok()) {
            described->bytes += TotalBytes(message->tensors);
          }
          wait.End();
          completion->Complete(message.ok() ? WriteResults(results, message->tensors, op)
                                            : message.status());
        });
  }

  // Completes once the channel has room.
  void Send(const CoreContext& core, std::vector<Tensor> tensors,
            std::shared_ptr<Completion> completion, ProfiledWait wait) const {
    const int capacity = call_.is_outfeed() ? kFeedCapacity : TensorChannels::kUnbounded;
    channels_.Send(KeyOf(call_.send, core), std::move(tensors), capacity, UserOn(core),
                   [completion = std::move(completion),
                    wait = std::move(wait)](const absl::Status& status) mutable {
                     wait.End();
                     completion->Complete(status);
                   });
  }

  // How a profile names the wait.
  std::string Name() const {
    if (call_.is_infeed()) return kInfeedName;
    if (call_.is_outfeed()) return kOutfeedName;
    return absl::StrCat("host: ", call_.op);
  }

  ChannelUser UserOn(const CoreContext& core) const { return {call_.op, core.launch_id.value()}; }

  // Infeed and outfeed are channels of a core; all others belong to a launch.
  ChannelKey KeyOf(const std::string& channel, const CoreContext& core) const {
    if (channel != kInfeedName && channel != kOutfeedName) {
      return {core.launch_id.value(), channel, core.slot.value()};
    }
    const bool of_group = call_.member.has_value() && core.group_cores != nullptr;
    const Core queue = of_group ? core.group_cores[*call_.member] : core.core;
    return {kNoLaunch, channel, queue.value()};
  }

  const TransferCall call_;
  const MonitoredChannels channels_;
  const std::shared_ptr<ClusterCounters> counters_;
  ProfileRecorder* const recorder_;
};

absl::StatusOr<std::unique_ptr<CustomCall>> MakeTransfer(const CallAttributes& attributes) {
  TF_ASSIGN_OR_RETURN(TransferCall call, DecodeTransferCall(attributes));
  const Process& process = Process::Get();
  std::shared_ptr<ClusterCounters> counters;
  // Infeed and outfeed are not clusters.
  if (!call.is_infeed() && !call.is_outfeed()) {
    counters =
        process.transfer_stats->CountersOf(call.counted_as.empty() ? call.op : call.counted_as);
  }
  return std::make_unique<TransferCustomCall>(
      std::move(call), MonitoredChannels(process.channels, process.wait_monitor),
      std::move(counters), process.recorder);
}

[[maybe_unused]] const bool kTransferRegistered = RegisterCustomCall<MakeTransfer>(kTransferTarget);

}  // namespace
}  // namespace tf_tpu_ext
