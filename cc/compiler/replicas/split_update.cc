#include "cc/compiler/replicas/split_update.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "cc/compiler/hlo/collective_patterns.h"
#include "cc/compiler/hlo/instruction_table.h"

namespace tf_tpu_ext {
namespace {

using xla::HloComputationProto;
using xla::HloInstructionProto;
using xla::HloModuleProto;

enum class Part {
  kReplica,
  kFree,     // depends on mirrored parameters alone: either part may compute it
  kCombine,  // the replicas' values become one
  kUpdate,   // depends on combined values and free ones
};

// Whether the update may compute the instruction, apart from what it calls.
bool IsPureAlone(const HloInstructionProto& instruction) {
  static const auto* const kept = new absl::flat_hash_set<std::string>(
      {"custom-call", "get-dimension-size", "set-dimension-size", "parameter"});
  return !kept->contains(instruction.opcode()) && !Communicates(instruction) &&
         !IsRandom(instruction);
}

// What a replica should not do twice, for itself and for the update.
bool IsHeavyOpcode(const std::string& opcode) {
  static const auto* const heavy = new absl::flat_hash_set<std::string>(
      {"cholesky", "conditional", "convolution", "dot", "fft", "reduce-window", "rng-bit-generator",
       "scatter", "select-and-scatter", "sort", "topk", "triangular-solve", "while"});
  return heavy->contains(opcode);
}

// Of more replicas, values that several instructions read are better added up once.
constexpr int kMostSummedByUpdate = 4;

// Whether the instruction computes each element from one element of each operand, as compilers fuse
// it with what makes its operands.
bool IsElementwiseArithmetic(const std::string& opcode) {
  return opcode == "add" || opcode == "subtract" || opcode == "multiply" || opcode == "divide";
}

class Splitter {
 public:
  Splitter(const HloModuleProto& module, int num_replicas,
           const std::vector<int>& mirrored_parameters)
      : module_(module),
        num_replicas_(num_replicas),
        mirrored_(mirrored_parameters.begin(), mirrored_parameters.end()) {
    for (const HloComputationProto& computation : module.computations()) {
      computations_[computation.id()] = &computation;
    }
    auto entry = computations_.find(module.entry_computation_id());
    if (entry != computations_.end()) entry_ = entry->second;
  }

  std::optional<SplitProgram> Split() {
    if (entry_ == nullptr || num_replicas_ < 2 || !Index()) return std::nullopt;
    Classify();
    KeepWhatOnlyTheUpdateNeeds();
    if (absl::c_find(parts_, Part::kCombine) == parts_.end()) return std::nullopt;
    return Build();
  }

 private:
  const HloInstructionProto& At(int position) const { return entry_->instructions(position); }

  // Fills the tables that lead from an instruction to its operands and users. False if the module
  // is not of the kind that can be split.
  bool Index() {
    const int count = entry_->instructions_size();
    absl::flat_hash_map<int32_t, int> position_of;
    instructions_ = InstructionsOf(*entry_);
    operands_.resize(count);
    users_.resize(count);
    for (int i = 0; i < count; ++i) {
      position_of[LocalId(At(i).id())] = i;
      for (int64_t operand : At(i).operand_ids()) {
        auto found = position_of.find(LocalId(operand));
        if (found == position_of.end()) return false;
        operands_[i].push_back(found->second);
      }
    }
    auto root = position_of.find(LocalId(entry_->root_id()));
    if (root == position_of.end() || At(root->second).opcode() != "tuple") return false;
    root_ = root->second;
    // Users that nobody needs don't count.
    live_.assign(count, false);
    live_[root_] = true;
    for (int i = 0; i < count; ++i) {
      for (int64_t id : At(i).control_predecessor_ids()) {
        auto found = position_of.find(LocalId(id));
        if (found != position_of.end()) controlled_.insert({i, found->second});
      }
      if (!IsPure(At(i))) live_[i] = true;
    }
    for (int i = count - 1; i >= 0; --i) {
      if (!live_[i]) continue;
      for (int operand : operands_[i]) {
        live_[operand] = true;
        users_[operand].push_back(i);
      }
    }
    return true;
  }

  bool IsPure(const HloInstructionProto& instruction) {
    if (!IsPureAlone(instruction)) return false;
    return absl::c_all_of(instruction.called_computation_ids(),
                          [this](int64_t id) { return IsPureComputation(id); });
  }

  bool IsPureComputation(int64_t id) {
    if (auto known = pure_computations_.find(id); known != pure_computations_.end()) {
      return known->second;
    }
    auto found = computations_.find(id);
    const bool pure = found != computations_.end() &&
                      absl::c_all_of(found->second->instructions(), [this](const auto& inner) {
                        return inner.opcode() == "parameter" || IsPure(inner);
                      });
    return pure_computations_[id] = pure;
  }

  void Classify() {
    parts_.assign(entry_->instructions_size(), Part::kReplica);
    for (int i = 0; i < entry_->instructions_size(); ++i) {
      if (!live_[i] || i == root_ || controlled_.contains(i)) continue;
      const HloInstructionProto& instruction = At(i);
      if (instruction.opcode() == "parameter") {
        // A scalar of one replica alone is no loss: the update then runs for each replica.
        if (instruction.shape().dimensions().empty() ||
            mirrored_.contains(instruction.parameter_number())) {
          parts_[i] = Part::kFree;
        }
      } else if (std::optional<Combined> combined = AsCombination(i); combined.has_value()) {
        combined_[i] = *combined;
        parts_[i] = Part::kCombine;
      } else if (IsPure(instruction)) {
        parts_[i] = Part::kFree;
        for (int operand : operands_[i]) {
          if (parts_[operand] == Part::kReplica) {
            parts_[i] = Part::kReplica;
            break;
          }
          if (parts_[operand] != Part::kFree) parts_[i] = Part::kUpdate;
        }
        if (parts_[i] == Part::kFree && IsHeavyOpcode(instruction.opcode())) {
          parts_[i] = Part::kReplica;
        }
      }
    }
  }

  struct Combined {
    Combination combination;
    int value = -1;  // what each replica brings
  };

  std::optional<Combined> AsCombination(int position) {
    const HloInstructionProto& instruction = At(position);
    if (instruction.opcode() == "all-reduce") return AsReduction(position);
    if (instruction.opcode() == "slice") return AsFirstReplicasValue(position);
    return std::nullopt;
  }

  std::optional<Combined> AsReduction(int position) const {
    const HloInstructionProto& instruction = At(position);
    if (operands_[position].size() != 1 || instruction.called_computation_ids_size() != 1 ||
        !MeetsAllReplicas(instruction, num_replicas_)) {
      return std::nullopt;
    }
    auto reducer = computations_.find(instruction.called_computation_ids(0));
    if (reducer == computations_.end()) return std::nullopt;
    static const auto* const kinds = new absl::flat_hash_map<std::string, Combination::Kind>(
        {{"add", Combination::kSum},
         {"multiply", Combination::kProduct},
         {"minimum", Combination::kMin},
         {"maximum", Combination::kMax}});
    const xla::PrimitiveType type = instruction.shape().element_type();
    auto kind = kinds->find(ReducerOpcode(*reducer->second, type));
    if (kind == kinds->end()) return std::nullopt;
    return Combined{{kind->second, type}, operands_[position][0]};
  }

  std::optional<Combined> AsFirstReplicasValue(int position) const {
    const HloInstructionProto* first =
        FirstReplicasValue(At(position), instructions_, num_replicas_);
    if (first == nullptr) return std::nullopt;
    const int pieces = operands_[operands_[position][0]][0];
    return Combined{{Combination::kFirst, first->shape().element_type()}, operands_[pieces][0]};
  }

  // Takes away from the update whatever the replica's own part reads, and what then follows.
  void KeepWhatOnlyTheUpdateNeeds() {
    std::vector<int> leaving;
    auto give_back = [&](int position) {
      if (parts_[position] != Part::kUpdate && parts_[position] != Part::kCombine) return;
      parts_[position] = Part::kReplica;
      leaving.push_back(position);
    };
    for (int i = 0; i < entry_->instructions_size(); ++i) {
      if (!live_[i] || i == root_) continue;
      if (parts_[i] == Part::kReplica || parts_[i] == Part::kCombine) {
        for (int operand : operands_[i]) give_back(operand);
      }
      if (auto combined = combined_.find(i); combined != combined_.end()) {
        give_back(combined->second.value);
      }
    }
    while (!leaving.empty()) {
      const int position = leaving.back();
      leaving.pop_back();
      for (int operand : operands_[position]) give_back(operand);
      for (int user : users_[position]) {
        if (parts_[user] == Part::kUpdate) give_back(user);
      }
    }
  }

  bool InUpdate(int position) const {
    return parts_[position] == Part::kUpdate || parts_[position] == Part::kCombine;
  }

  SplitProgram Build() const {
    SplitProgram split;
    std::vector<int> replica_results, update_results;  // positions
    for (int result = 0; result < static_cast<int>(operands_[root_].size()); ++result) {
      const int value = operands_[root_][result];
      if (InUpdate(value)) {
        split.update_results.push_back(result);
        update_results.push_back(value);
      } else {
        split.replica_results.push_back(result);
        replica_results.push_back(value);
      }
    }
    std::vector<int> combined;
    for (int i = 0; i < entry_->instructions_size(); ++i) {
      if (parts_[i] != Part::kCombine) continue;
      combined.push_back(i);
      split.combinations.push_back(combined_.at(i).combination);
      split.combinations.back().by_update = MayBeSummedByUpdate(i);
      replica_results.push_back(combined_.at(i).value);
    }
    BuildReplica(replica_results, &split);
    BuildUpdate(update_results, combined, &split);
    return split;
  }

  // A sum that one instruction reads costs that instruction less than a pass over memory.
  bool MayBeSummedByUpdate(int position) const {
    const Combination& combination = combined_.at(position).combination;
    return combination.kind == Combination::kSum && combination.type == xla::F32 &&
           num_replicas_ <= kMostSummedByUpdate && users_[position].size() == 1 &&
           IsElementwiseArithmetic(At(users_[position][0]).opcode());
  }

  void BuildReplica(const std::vector<int>& results, SplitProgram* split) const {
    std::vector<bool> kept = live_;
    for (int i = 0; i < entry_->instructions_size(); ++i) {
      if (i == root_ || InUpdate(i)) kept[i] = false;
    }
    // What nobody needs any more: an exchange must not stay behind.
    for (int i = entry_->instructions_size() - 1; i >= 0; --i) {
      if (!kept[i] || At(i).opcode() != "all-to-all" || absl::c_linear_search(results, i)) continue;
      if (absl::c_none_of(users_[i], [&](int user) { return user == root_ || kept[user]; })) {
        kept[i] = false;
      }
    }
    HloComputationProto* entry = CopyEntry(kept, &split->replica);
    SetResults(results, entry, &split->replica);
  }

  void BuildUpdate(const std::vector<int>& results, const std::vector<int>& combined,
                   SplitProgram* split) const {
    std::vector<bool> kept(entry_->instructions_size(), false);
    for (int result : results) kept[result] = true;
    for (int i : combined) kept[i] = true;
    for (int i = entry_->instructions_size() - 1; i >= 0; --i) {
      if (!kept[i] || parts_[i] == Part::kCombine) continue;
      for (int operand : operands_[i]) kept[operand] = true;
    }
    int num_parameters = 0;
    for (int i = 0; i < entry_->instructions_size(); ++i) {
      if (At(i).opcode() != "parameter") continue;
      ++num_parameters;
      if (kept[i]) split->update_parameters.push_back(At(i).parameter_number());
      kept[i] = true;
    }
    absl::c_sort(split->update_parameters);
    HloComputationProto* entry = CopyEntry(kept, &split->update);
    TakeCombinedValues(combined, num_parameters, entry, split);
    SetResults(results, entry, &split->update);
  }

  // Puts parameters, and their sums, in the place of the update's combinations.
  void TakeCombinedValues(const std::vector<int>& combined, int num_parameters,
                          HloComputationProto* entry, SplitProgram* split) const {
    absl::flat_hash_map<int64_t, int> number_of;
    int64_t last_id = 0;
    for (size_t k = 0; k < combined.size(); ++k) number_of[At(combined[k]).id()] = k;
    for (const HloInstructionProto& instruction : entry_->instructions()) {
      last_id = std::max(last_id, instruction.id());
    }
    std::vector<HloInstructionProto> instructions(entry->instructions().begin(),
                                                  entry->instructions().end());
    entry->clear_instructions();
    // Parameters in the order of the combinations, which is that of the instructions.
    for (HloInstructionProto& instruction : instructions) {
      const auto number = number_of.find(instruction.id());
      if (number == number_of.end()) {
        *entry->add_instructions() = std::move(instruction);
        continue;
      }
      const int values = split->combinations[number->second].by_update ? num_replicas_ : 1;
      int64_t sum = 0;
      for (int value = 0; value < values; ++value) {
        // What the others refer to comes last.
        const int64_t parameter = values == 1 ? instruction.id() : ++last_id;
        AddParameter(num_parameters + split->num_combined_values++,
                     absl::StrCat("combined.", number->second, ".", value), instruction.shape(),
                     parameter, entry, &split->update);
        if (value == 0) {
          sum = parameter;
          continue;
        }
        HloInstructionProto* add = entry->add_instructions();
        add->set_opcode("add");
        add->set_name(absl::StrCat("sum.", number->second, ".", value));
        add->add_operand_ids(LocalId(sum));
        add->add_operand_ids(LocalId(parameter));
        *add->mutable_shape() = instruction.shape();
        add->set_id(value + 1 == values ? instruction.id() : ++last_id);
        sum = add->id();
      }
    }
  }

  static void AddParameter(int number, const std::string& name, const xla::ShapeProto& shape,
                           int64_t id, HloComputationProto* entry, HloModuleProto* module) {
    HloInstructionProto* parameter = entry->add_instructions();
    parameter->set_opcode("parameter");
    parameter->set_id(id);
    parameter->set_name(name);
    parameter->set_parameter_number(number);
    *parameter->mutable_shape() = shape;
    for (xla::ProgramShapeProto* program :
         {module->mutable_host_program_shape(), entry->mutable_program_shape()}) {
      *program->add_parameters() = shape;
      program->add_parameter_names(name);
    }
  }

  // Copies the module with only those instructions of the entry that are kept.
  HloComputationProto* CopyEntry(const std::vector<bool>& kept, HloModuleProto* copy) const {
    *copy = module_;
    copy->clear_input_output_alias();
    HloComputationProto* entry = nullptr;
    for (HloComputationProto& computation : *copy->mutable_computations()) {
      if (computation.id() == entry_->id()) entry = &computation;
    }
    entry->clear_instructions();
    for (int i = 0; i < entry_->instructions_size(); ++i) {
      if (kept[i]) *entry->add_instructions() = At(i);
    }
    return entry;
  }

  void SetResults(const std::vector<int>& results, HloComputationProto* entry,
                  HloModuleProto* module) const {
    HloInstructionProto* root = entry->add_instructions();
    root->set_id(At(root_).id());
    root->set_name(At(root_).name());
    root->set_opcode("tuple");
    xla::ShapeProto* shape = root->mutable_shape();
    shape->set_element_type(xla::TUPLE);
    for (int result : results) {
      root->add_operand_ids(LocalId(At(result).id()));
      *shape->add_tuple_shapes() = At(result).shape();
    }
    *entry->mutable_program_shape()->mutable_result() = *shape;
    *module->mutable_host_program_shape()->mutable_result() = *shape;
  }

  const HloModuleProto& module_;
  const int num_replicas_;
  const absl::flat_hash_set<int> mirrored_;
  absl::flat_hash_map<int64_t, const HloComputationProto*> computations_;
  const HloComputationProto* entry_ = nullptr;
  absl::flat_hash_map<int64_t, bool> pure_computations_;

  InstructionTable instructions_;  // of the entry

  // By position in the entry computation.
  int root_ = -1;
  std::vector<std::vector<int>> operands_;
  std::vector<std::vector<int>> users_;  // the live ones
  std::vector<bool> live_;
  absl::flat_hash_set<int> controlled_;  // has control dependencies
  std::vector<Part> parts_;
  absl::flat_hash_map<int, Combined> combined_;
};

}  // namespace

std::optional<SplitProgram> SplitUpdate(const HloModuleProto& module, int num_replicas,
                                        const std::vector<int>& mirrored_parameters) {
  return Splitter(module, num_replicas, mirrored_parameters).Split();
}

}  // namespace tf_tpu_ext
