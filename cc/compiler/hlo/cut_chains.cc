#include "cc/compiler/hlo/cut_chains.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "cc/compiler/hlo/instruction_table.h"
#include "cc/program/chain_cut.h"

namespace tf_tpu_ext {
namespace {

using xla::HloComputationProto;
using xla::HloInstructionProto;
using xla::HloModuleProto;

// Where a kernel ends anyway, or that is no computation.
bool EndsKernel(const HloInstructionProto& instruction) {
  static const auto* const opcodes = new absl::flat_hash_set<std::string>({"all-gather",
                                                                           "all-reduce",
                                                                           "all-to-all",
                                                                           "call",
                                                                           "cholesky",
                                                                           "collective-permute",
                                                                           "conditional",
                                                                           "constant",
                                                                           "convolution",
                                                                           "custom-call",
                                                                           "dot",
                                                                           "fft",
                                                                           "infeed",
                                                                           "outfeed",
                                                                           "parameter",
                                                                           "recv",
                                                                           "reduce-scatter",
                                                                           "rng",
                                                                           "rng-bit-generator",
                                                                           "scatter",
                                                                           "send",
                                                                           "sort",
                                                                           "triangular-solve",
                                                                           "while"});
  const xla::PrimitiveType type = instruction.shape().element_type();
  return type == xla::TUPLE || type == xla::TOKEN || opcodes->contains(instruction.opcode());
}

bool HasDynamicShapes(const HloModuleProto& module) {
  return absl::c_any_of(module.computations(), [](const HloComputationProto& computation) {
    return absl::c_any_of(computation.instructions(), [](const HloInstructionProto& instruction) {
      return absl::c_linear_search(instruction.shape().is_dynamic_dimension(), true);
    });
  });
}

class ChainCutter {
 public:
  ChainCutter(int max_length, HloModuleProto* module)
      : max_length_(max_length), module_(*module), next_id_(FirstFreeId(*module)) {
    for (HloComputationProto& computation : *module_.mutable_computations()) {
      computations_[LocalId(computation.id())] = &computation;
    }
  }

  void Run() {
    // Bodies of reductions and sorts are part of kernels: only what runs op by op can be cut.
    std::vector<int64_t> to_cut = {module_.entry_computation_id()};
    absl::flat_hash_set<int64_t> seen(to_cut.begin(), to_cut.end());
    while (!to_cut.empty()) {
      HloComputationProto* computation = computations_.at(LocalId(to_cut.back()));
      to_cut.pop_back();
      for (const HloInstructionProto& instruction : computation->instructions()) {
        if (!RunsComputations(instruction)) continue;
        for (int64_t callee : instruction.called_computation_ids()) {
          if (seen.insert(callee).second) to_cut.push_back(callee);
        }
      }
      Cut(computation);
    }
  }

 private:
  static bool RunsComputations(const HloInstructionProto& instruction) {
    return instruction.opcode() == "call" || instruction.opcode() == "while" ||
           instruction.opcode() == "conditional";
  }

  void Cut(HloComputationProto* computation) {
    struct Value {
      const HloInstructionProto* instruction;
      int length;           // of the longest chain that ends with it
      int32_t cut_id = -1;  // of its cut, if it has one
    };
    absl::flat_hash_map<int32_t, Value> values;
    values.reserve(computation->instructions_size());
    google::protobuf::RepeatedPtrField<HloInstructionProto> instructions;
    instructions.Swap(computation->mutable_instructions());
    // Operands stand before their users.
    for (HloInstructionProto& instruction : instructions) {
      const bool in_kernel = !EndsKernel(instruction);
      int length = in_kernel ? 1 : 0;
      for (int i = 0; in_kernel && i < instruction.operand_ids_size(); ++i) {
        const int64_t operand = instruction.operand_ids(i);
        Value& value = values.at(LocalId(operand));
        if (value.length < max_length_) {
          length = std::max(length, value.length + 1);
          continue;
        }
        if (value.cut_id < 0) {
          value.cut_id = next_id_++;
          *computation->add_instructions() = CutOf(*value.instruction, operand, value.cut_id);
        }
        instruction.set_operand_ids(i, WithLocalId(operand, value.cut_id));
      }
      HloInstructionProto* kept = computation->add_instructions();
      kept->Swap(&instruction);
      values[LocalId(kept->id())] = {kept, length};
    }
  }

  static int64_t WithLocalId(int64_t id, int32_t local_id) { return id - LocalId(id) + local_id; }

  static HloInstructionProto CutOf(const HloInstructionProto& instruction, int64_t id,
                                   int32_t cut_id) {
    HloInstructionProto cut;
    cut.set_name(absl::StrCat("chain-cut.", cut_id));
    cut.set_opcode("custom-call");
    cut.set_id(WithLocalId(instruction.id(), cut_id));
    *cut.mutable_shape() = instruction.shape();
    *cut.mutable_metadata() = instruction.metadata();
    cut.add_operand_ids(id);
    cut.set_custom_call_target(kChainCutTarget);
    cut.set_custom_call_api_version(xla::API_VERSION_TYPED_FFI);
    cut.add_output_operand_aliasing()->set_operand_index(0);
    return cut;
  }

  const int max_length_;
  HloModuleProto& module_;
  absl::flat_hash_map<int32_t, HloComputationProto*> computations_;
  int32_t next_id_;
};

}  // namespace

void CutChains(int max_length, HloModuleProto* module) {
  if (!HasDynamicShapes(*module)) ChainCutter(max_length, module).Run();
}

}  // namespace tf_tpu_ext
