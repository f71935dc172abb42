#include "cc/compiler/hlo/join_updates.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cc/compiler/hlo/cut_chains.h"
#include "cc/program/pack.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/hlo/ir/hlo_print_options.h"
#include "xla/primitive_util.h"
#include "xla/shape.h"
#include "xla/shape_util.h"
#include "xla/tsl/platform/errors.h"

namespace tf_tpu_ext {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;
using xla::Shape;
using xla::ShapeUtil;

// Copying larger arrays takes longer than a kernel of their own.
constexpr int64_t kMostElements = 1 << 14;
// With fewer, the copies and the kernel cost as much as the kernels that they save.
constexpr size_t kFewestUpdates = 4;
// An optimizer's update of one variable has about 30.
constexpr size_t kMostInstructions = 256;

// Elementwise, or changes nothing but the shape. These have no attributes beyond those that
// Attributes prints.
bool IsElementwise(HloOpcode opcode) {
  switch (opcode) {
    case HloOpcode::kAbs:
    case HloOpcode::kAdd:
    case HloOpcode::kAnd:
    case HloOpcode::kCompare:
    case HloOpcode::kConvert:
    case HloOpcode::kDivide:
    case HloOpcode::kExp:
    case HloOpcode::kLog:
    case HloOpcode::kMaximum:
    case HloOpcode::kMinimum:
    case HloOpcode::kMultiply:
    case HloOpcode::kNegate:
    case HloOpcode::kNot:
    case HloOpcode::kOr:
    case HloOpcode::kPower:
    case HloOpcode::kReshape:
    case HloOpcode::kRsqrt:
    case HloOpcode::kSelect:
    case HloOpcode::kSign:
    case HloOpcode::kSqrt:
    case HloOpcode::kSubtract:
    case HloOpcode::kTanh:
      return true;
    default:
      return false;
  }
}

bool IsScalar(const HloInstruction& instruction) {
  return ShapeUtil::IsScalar(instruction.shape());
}

bool IsBroadcastScalar(const HloInstruction& instruction) {
  return instruction.opcode() == HloOpcode::kBroadcast && IsScalar(*instruction.operand(0));
}

// Whether the array may be packed, as far as its shape is concerned.
bool IsSmallArray(const Shape& shape) {
  return shape.IsArray() && shape.is_static() && !shape.dimensions().empty() &&
         !xla::primitive_util::IsSubByteNonPredType(shape.element_type()) &&
         ShapeUtil::ElementsIn(shape) > 0 && ShapeUtil::ElementsIn(shape) <= kMostElements;
}

bool HasOrder(const HloInstruction& instruction) {
  return !instruction.control_predecessors().empty() || !instruction.control_successors().empty();
}

std::string Attributes(const HloInstruction& instruction) {
  return absl::StrCat(
      xla::HloOpcodeString(instruction.opcode()), " ",
      xla::PrimitiveType_Name(instruction.shape().element_type()), " ",
      absl::StrJoin(instruction.ExtraAttributesToString(xla::HloPrintOptions::Canonical()), " "));
}

// Numbers for the scalars of a computation, the same for those that are computed in the same way.
class ScalarNumbers {
 public:
  explicit ScalarNumbers(absl::Span<HloInstruction* const> post_order) {
    for (const HloInstruction* instruction : post_order) {
      if (IsScalar(*instruction)) numbers_[instruction] = NumberOf(*instruction);
    }
  }

  int64_t Of(const HloInstruction* scalar) const { return numbers_.at(scalar); }

 private:
  int64_t NumberOf(const HloInstruction& scalar) {
    const auto next = static_cast<int64_t>(numbers_.size());
    std::string computed;
    if (scalar.opcode() == HloOpcode::kConstant) {
      const absl::string_view bytes(static_cast<const char*>(scalar.literal().untyped_data()),
                                    scalar.literal().size_bytes());
      computed = absl::StrCat(xla::PrimitiveType_Name(scalar.shape().element_type()), " ", bytes);
    } else if (IsElementwise(scalar.opcode()) &&
               absl::c_all_of(scalar.operands(), [](auto* each) { return IsScalar(*each); })) {
      computed = Attributes(scalar);
      for (const HloInstruction* operand : scalar.operands()) {
        absl::StrAppend(&computed, " ", numbers_.at(operand));
      }
    } else {
      return next;
    }
    return computed_.try_emplace(std::move(computed), next).first->second;
  }

  absl::flat_hash_map<const HloInstruction*, int64_t> numbers_;
  absl::flat_hash_map<std::string, int64_t> computed_;
};

// The instructions of a computation that may move to where all that they need is there: they
// compute small arrays, which only each other and the computation's results use.
class LastInstructions {
 public:
  explicit LastInstructions(absl::Span<HloInstruction* const> post_order) {
    for (auto it = post_order.rbegin(); it != post_order.rend(); ++it) {
      if (MayMove(**it)) found_.insert(*it);
    }
  }

  bool Have(const HloInstruction* instruction) const { return found_.contains(instruction); }

 private:
  bool MayMove(const HloInstruction& instruction) const {
    if (!IsElementwise(instruction.opcode()) || !IsSmallArray(instruction.shape()) ||
        HasOrder(instruction) || instruction.user_count() == 0) {
      return false;
    }
    const int64_t elements = ShapeUtil::ElementsIn(instruction.shape());
    return absl::c_all_of(instruction.operands(),
                          [&](const HloInstruction* operand) {
                            return IsBroadcastScalar(*operand) ||
                                   (IsSmallArray(operand->shape()) &&
                                    ShapeUtil::ElementsIn(operand->shape()) == elements);
                          }) &&
           absl::c_all_of(instruction.users(), [&](const HloInstruction* user) {
             return user == user->parent()->root_instruction() || Have(user);
           });
  }

  absl::flat_hash_set<const HloInstruction*> found_;
};

// Instructions that are connected with each other, such as the update of a variable and of its
// slots.
struct Update {
  std::vector<HloInstruction*> instructions;  // operands first
  std::vector<HloInstruction*> operands;      // arrays that it takes from elsewhere
  std::vector<size_t> results;                // which of the instructions are the computation's
  std::string description;                    // the same for updates that compute the same
};

// Finds the updates among the last instructions of a computation whose root is a tuple.
class Updates {
 public:
  Updates(absl::Span<HloInstruction* const> post_order, const HloInstruction& root)
      : root_(root), last_(post_order), scalars_(post_order) {
    for (HloInstruction* instruction : post_order) {
      if (!last_.Have(instruction)) continue;
      for (HloInstruction* operand : instruction->operands()) {
        if (!IsBroadcastScalar(*operand)) Connect(instruction, operand);
      }
    }
  }

  std::vector<Update> Find() {
    // In the order of the results.
    std::vector<const HloInstruction*> order;
    absl::flat_hash_map<const HloInstruction*, std::vector<HloInstruction*>> results;
    absl::flat_hash_set<const HloInstruction*> seen;
    for (HloInstruction* result : root_.operands()) {
      if (!last_.Have(result) || !seen.insert(result).second) continue;
      std::vector<HloInstruction*>& of_update = results[Representative(result)];
      if (of_update.empty()) order.push_back(Representative(result));
      of_update.push_back(result);
    }
    std::vector<Update> updates;
    for (const HloInstruction* each : order) {
      if (sizes_[each] <= kMostInstructions) updates.push_back(Describe(results[each]));
    }
    return updates;
  }

 private:
  void Connect(const HloInstruction* a, const HloInstruction* b) {
    a = Representative(a);
    b = Representative(b);
    if (a == b) return;
    parents_[b] = a;
    sizes_[a] = std::max<size_t>(sizes_[a], 1) + std::max<size_t>(sizes_[b], 1);
  }

  const HloInstruction* Representative(const HloInstruction* instruction) {
    auto parent = parents_.find(instruction);
    while (parent != parents_.end()) {
      // Shortens the way for the next search.
      const auto grandparent = parents_.find(parent->second);
      if (grandparent == parents_.end()) return parent->second;
      parent->second = grandparent->second;
      instruction = grandparent->second;
      parent = parents_.find(instruction);
    }
    return instruction;
  }

  Update Describe(absl::Span<HloInstruction* const> results) const {
    Update update;
    absl::flat_hash_map<const HloInstruction*, std::string> names;
    for (HloInstruction* result : results) {
      const std::string& name = NameOf(result, &update, &names);
      update.results.push_back(absl::c_find(update.instructions, result) -
                               update.instructions.begin());
      absl::StrAppend(&update.description, "result ", name, "\n");
    }
    return update;
  }

  // Adds the instruction, and what it needs, to the update. There are at most kMostInstructions.
  std::string NameOf(HloInstruction* instruction, Update* update,
                     absl::flat_hash_map<const HloInstruction*, std::string>* names) const {
    if (const auto found = names->find(instruction); found != names->end()) return found->second;
    std::string name;
    std::string described;
    if (last_.Have(instruction)) {
      described = Attributes(*instruction);
      for (HloInstruction* operand : instruction->operands()) {
        absl::StrAppend(&described, " ", NameOf(operand, update, names));
      }
      name = absl::StrCat("%", update->instructions.size());
      update->instructions.push_back(instruction);
    } else if (IsBroadcastScalar(*instruction)) {
      return absl::StrCat("scalar", scalars_.Of(instruction->operand(0)));
    } else {
      described = xla::PrimitiveType_Name(instruction->shape().element_type());
      name = absl::StrCat("operand", update->operands.size());
      update->operands.push_back(instruction);
    }
    absl::StrAppend(&update->description, name, " ", described, "\n");
    return (*names)[instruction] = name;
  }

  const HloInstruction& root_;
  const LastInstructions last_;
  const ScalarNumbers scalars_;
  absl::flat_hash_map<const HloInstruction*, const HloInstruction*> parents_;
  absl::flat_hash_map<const HloInstruction*, size_t> sizes_;
};

// Replaces updates that compute the same by one of all their arrays.
class JoinedUpdate {
 public:
  explicit JoinedUpdate(absl::Span<const Update> updates)
      : updates_(updates),
        model_(updates.front()),
        computation_(*model_.instructions.front()->parent()) {
    for (const Update& update : updates) {
      elements_ += ShapeUtil::ElementsIn(update.instructions.front()->shape());
    }
  }

  absl::Status Replace() {
    for (size_t i = 0; i < model_.operands.size(); ++i) joined_[model_.operands[i]] = Pack(i);
    for (const HloInstruction* instruction : model_.instructions) {
      joined_[instruction] = Join(*instruction);
    }
    for (const size_t result : model_.results) TF_RETURN_IF_ERROR(Unpack(result));
    return absl::OkStatus();
  }

 private:
  Shape ShapeOf(const HloInstruction& of_one, int64_t elements) const {
    return ShapeUtil::MakeShape(of_one.shape().element_type(), {elements});
  }

  HloInstruction* AsVector(HloInstruction* array) const {
    const Shape vector = ShapeOf(*array, ShapeUtil::ElementsIn(array->shape()));
    // Vectors have only one layout, whatever layout XLA chooses for arrays of more dimensions.
    return computation_.AddInstruction(HloInstruction::CreateReshape(vector, array));
  }

  HloInstruction* Pack(size_t operand) const {
    std::vector<HloInstruction*> vectors;
    for (const Update& update : updates_) vectors.push_back(AsVector(update.operands[operand]));
    return Call(ShapeOf(*vectors.front(), elements_), vectors, kPackTarget);
  }

  HloInstruction* Join(const HloInstruction& instruction) {
    const Shape shape = ShapeOf(instruction, elements_);
    std::vector<HloInstruction*> operands;
    for (HloInstruction* operand : instruction.operands()) {
      HloInstruction*& joined = joined_[operand];
      if (joined == nullptr) {  // a scalar, the same in all updates
        joined = computation_.AddInstruction(HloInstruction::CreateBroadcast(
            ShapeOf(*operand, elements_), operand->mutable_operand(0), {}));
      }
      operands.push_back(joined);
    }
    // All joined arrays have the same shape.
    if (instruction.opcode() == HloOpcode::kReshape) return operands.front();
    return computation_.AddInstruction(instruction.CloneWithNewOperands(shape, operands));
  }

  absl::Status Unpack(size_t result) const {
    std::vector<Shape> shapes;
    for (const Update& update : updates_) {
      const HloInstruction& of_one = *update.instructions[result];
      shapes.push_back(ShapeOf(of_one, ShapeUtil::ElementsIn(of_one.shape())));
    }
    HloInstruction* const all = Call(ShapeUtil::MakeTupleShape(shapes),
                                     {joined_.at(model_.instructions[result])}, kUnpackTarget);
    for (size_t i = 0; i < updates_.size(); ++i) {
      HloInstruction* const replaced = updates_[i].instructions[result];
      HloInstruction* const vector = computation_.AddInstruction(
          HloInstruction::CreateGetTupleElement(shapes[i], all, static_cast<int64_t>(i)));
      HloInstruction* const array =
          computation_.AddInstruction(HloInstruction::CreateReshape(replaced->shape(), vector));
      TF_RETURN_IF_ERROR(replaced->ReplaceAllUsesWith(array));
    }
    return absl::OkStatus();
  }

  HloInstruction* Call(const Shape& shape, absl::Span<HloInstruction* const> operands,
                       const char* target) const {
    HloInstruction* const call = computation_.AddInstruction(HloInstruction::CreateCustomCall(
        shape, operands, target, /*opaque=*/"", xla::API_VERSION_TYPED_FFI));
    call->set_metadata(model_.instructions.back()->metadata());
    return call;
  }

  const absl::Span<const Update> updates_;
  const Update& model_;
  HloComputation& computation_;
  int64_t elements_ = 0;
  absl::flat_hash_map<const HloInstruction*, HloInstruction*> joined_;
};

absl::Status JoinIn(HloComputation* computation) {
  const HloInstruction& root = *computation->root_instruction();
  if (root.opcode() != HloOpcode::kTuple) return absl::OkStatus();
  const std::vector<HloInstruction*> post_order = computation->MakeInstructionPostOrder();
  std::map<std::string, std::vector<Update>> alike;
  for (Update& update : Updates(post_order, root).Find()) {
    alike[update.description].push_back(std::move(update));
  }
  for (const auto& [description, updates] : alike) {
    if (updates.size() < kFewestUpdates) continue;
    TF_RETURN_IF_ERROR(JoinedUpdate(updates).Replace());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status JoinUpdates(xla::HloModule* module) {
  if (HasDynamicShapes(*module)) return absl::OkStatus();
  for (HloComputation* computation : ComputationsOfOps(module)) {
    TF_RETURN_IF_ERROR(JoinIn(computation));
  }
  return absl::OkStatus();
}

}  // namespace tf_tpu_ext
