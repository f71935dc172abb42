#include "cc/compiler/hlo/cut_chains.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "cc/program/chain_cut.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/shape_util.h"
#include "xla/tsl/platform/errors.h"

namespace tf_tpu_ext {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;

// Whether a kernel ends here anyway, or the instruction computes nothing.
bool EndsKernel(const HloInstruction& instruction) {
  if (!instruction.shape().IsArray()) return true;
  switch (instruction.opcode()) {
    case HloOpcode::kAllGather:
    case HloOpcode::kAllReduce:
    case HloOpcode::kAllToAll:
    case HloOpcode::kCall:
    case HloOpcode::kCholesky:
    case HloOpcode::kCollectivePermute:
    case HloOpcode::kConditional:
    case HloOpcode::kConstant:
    case HloOpcode::kConvolution:
    case HloOpcode::kCustomCall:
    case HloOpcode::kDot:
    case HloOpcode::kFft:
    case HloOpcode::kInfeed:
    case HloOpcode::kOutfeed:
    case HloOpcode::kParameter:
    case HloOpcode::kRecv:
    case HloOpcode::kReduceScatter:
    case HloOpcode::kRng:
    case HloOpcode::kRngBitGenerator:
    case HloOpcode::kScatter:
    case HloOpcode::kSend:
    case HloOpcode::kSort:
    case HloOpcode::kTriangularSolve:
    case HloOpcode::kWhile:
      return true;
    default:
      return false;
  }
}

absl::Status Cut(int max_length, HloComputation* computation) {
  struct Value {
    int length = 0;                 // of the longest chain that ends here
    HloInstruction* cut = nullptr;  // set if the value has one
  };
  absl::flat_hash_map<const HloInstruction*, Value> values;
  values.reserve(computation->instruction_count());
  for (HloInstruction* instruction : computation->MakeInstructionPostOrder()) {
    const bool in_kernel = !EndsKernel(*instruction);
    int length = in_kernel ? 1 : 0;
    for (int i = 0; in_kernel && i < instruction->operand_count(); ++i) {
      HloInstruction* operand = instruction->mutable_operand(i);
      Value& value = values.at(operand);
      if (value.length < max_length) {
        length = std::max(length, value.length + 1);
        continue;
      }
      if (value.cut == nullptr) value.cut = AddCutOf(operand);
      TF_RETURN_IF_ERROR(instruction->ReplaceOperandWith(i, value.cut));
    }
    values[instruction].length = length;
  }
  return absl::OkStatus();
}

}  // namespace

bool HasDynamicShapes(const xla::HloModule& module) {
  return absl::c_any_of(module.computations(), [](const HloComputation* computation) {
    return absl::c_any_of(computation->instructions(), [](const HloInstruction* instruction) {
      return instruction->shape().is_dynamic();
    });
  });
}

std::vector<HloComputation*> ComputationsOfOps(xla::HloModule* module) {
  std::vector<HloComputation*> found = {module->entry_computation()};
  absl::flat_hash_set<HloComputation*> seen(found.begin(), found.end());
  for (size_t i = 0; i < found.size(); ++i) {
    for (const HloInstruction* instruction : found[i]->instructions()) {
      const HloOpcode opcode = instruction->opcode();
      if (opcode != HloOpcode::kCall && opcode != HloOpcode::kWhile &&
          opcode != HloOpcode::kConditional) {
        continue;
      }
      for (HloComputation* callee : instruction->called_computations()) {
        if (seen.insert(callee).second) found.push_back(callee);
      }
    }
  }
  return found;
}

HloInstruction* AddCutOf(HloInstruction* instruction) {
  auto cut = HloInstruction::CreateCustomCall(instruction->shape(), {instruction}, kChainCutTarget,
                                              /*opaque=*/"", xla::API_VERSION_TYPED_FFI);
  cut->set_metadata(instruction->metadata());
  cut->set_output_to_operand_aliasing({{{}, {0, {}}}});
  return instruction->parent()->AddInstruction(std::move(cut), "chain-cut");
}

absl::Status CutChains(int max_length, xla::HloModule* module) {
  if (HasDynamicShapes(*module)) return absl::OkStatus();
  for (HloComputation* computation : ComputationsOfOps(module)) {
    TF_RETURN_IF_ERROR(Cut(max_length, computation));
  }
  return absl::OkStatus();
}

}  // namespace tf_tpu_ext
