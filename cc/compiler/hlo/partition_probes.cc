// Tells XLA how to divide a program's probes over the cores of a replica.
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "cc/abi/xla/spmd_partitioner.h"
#include "cc/program/probe_call.h"
#include "xla/hlo/ir/hlo_casting_utils.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/layout_util.h"
#include "xla/service/custom_call_sharding_helper.h"

namespace tf_tpu_ext {
namespace {

using xla::HloInstruction;

// Lets each core show its part of an array, which would otherwise be gathered for the call.
class ProbePartitioner : public xla::CustomCallPartitioner {
 public:
  // Each core makes the call.
  bool CanSideEffectingHaveReplicatedSharding() const override { return true; }

  absl::Status Partition(xla::spmd::SpmdPartitioningVisitor* partitioner,
                         HloInstruction* call) const override {
    std::vector<HloInstruction*> operands;
    std::vector<xla::Shape> shapes;
    for (const HloInstruction* operand : call->operands()) {
      const xla::spmd::PartitionedHlo& part = partitioner->GetPartitionedHlo(operand);
      // All parts have the same size, so anything may follow the end of the array.
      const bool is_divided = operand->shape().IsArray() && !part.sharding().IsManual();
      operands.push_back(is_divided ? part.PadWithZero().hlo() : part.hlo());
      shapes.push_back(operands.back()->shape());
      if (shapes.back().IsArray()) xla::LayoutUtil::SetToDefaultLayout(&shapes.back());
    }
    const auto* whole = xla::Cast<xla::HloCustomCallInstruction>(call);
    partitioner->SetPartitionedHlo(call, [&] {
      HloInstruction* const made = partitioner->builder()->AddInstruction(
          HloInstruction::CreateCustomCall(call->shape(), operands, whole->custom_call_target(),
                                           shapes, whole->opaque(), whole->api_version()));
      xla::Cast<xla::HloCustomCallInstruction>(made)->set_custom_call_has_side_effect(true);
      made->set_metadata(call->metadata());
      return made;
    });
    return absl::OkStatus();
  }
};

[[maybe_unused]] const bool kRegistered = [] {
  xla::RegisterCustomCallPartitioner(kProbeTarget, std::make_unique<ProbePartitioner>());
  return true;
}();

}  // namespace
}  // namespace tf_tpu_ext
