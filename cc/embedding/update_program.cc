#include "cc/embedding/update_program.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/log/log.h"
#include "absl/strings/str_cat.h"
#include "xla/comparison_util.h"
#include "xla/hlo/evaluator/hlo_evaluator.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/literal.h"
#include "xla/literal_util.h"
#include "xla/service/hlo.pb.h"
#include "xla/service/hlo_module_config.h"
#include "xla/service/shape_inference.h"
#include "xla/shape_util.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using xla::HloInstruction;
using xla::HloInstructionProto;
using xla::HloOpcode;
using xla::Shape;
using xla::ShapeInference;
using xla::ShapeUtil;

absl::Status Refuse(const std::string& got, const std::string& expected) {
  return absl::InvalidArgumentError(absl::StrCat(
      "The user-defined program of an embedding optimizer has ", got, "; expected ", expected,
      ". See UserDefinedProgramParameters in TensorFlow's "
      "optimization_parameters.proto."));
}

absl::Status Refuse(const HloInstructionProto& instruction, const std::string& expected) {
  return Refuse(
      absl::StrCat("the instruction '", instruction.name(), "' (", instruction.opcode(), ")"),
      expected);
}

// Operations that only change the shape of their one value.
bool KeepsItsValue(HloOpcode opcode) {
  switch (opcode) {
    case HloOpcode::kBitcast:
    case HloOpcode::kBroadcast:
    case HloOpcode::kCopy:
    case HloOpcode::kReshape:
    case HloOpcode::kTranspose:
      return true;
    default:
      return false;
  }
}

// How many values an elementwise operation takes, or 0 if it isn't one.
size_t ElementwiseArity(HloOpcode opcode) {
  switch (opcode) {
    case HloOpcode::kAbs:
    case HloOpcode::kCbrt:
    case HloOpcode::kCeil:
    case HloOpcode::kConvert:
    case HloOpcode::kCos:
    case HloOpcode::kErf:
    case HloOpcode::kExp:
    case HloOpcode::kExpm1:
    case HloOpcode::kFloor:
    case HloOpcode::kIsFinite:
    case HloOpcode::kLog:
    case HloOpcode::kLog1p:
    case HloOpcode::kLogistic:
    case HloOpcode::kNegate:
    case HloOpcode::kNot:
    case HloOpcode::kRoundNearestAfz:
    case HloOpcode::kRoundNearestEven:
    case HloOpcode::kRsqrt:
    case HloOpcode::kSign:
    case HloOpcode::kSin:
    case HloOpcode::kSqrt:
    case HloOpcode::kTan:
    case HloOpcode::kTanh:
      return 1;
    case HloOpcode::kAdd:
    case HloOpcode::kAnd:
    case HloOpcode::kAtan2:
    case HloOpcode::kCompare:
    case HloOpcode::kDivide:
    case HloOpcode::kMaximum:
    case HloOpcode::kMinimum:
    case HloOpcode::kMultiply:
    case HloOpcode::kOr:
    case HloOpcode::kPower:
    case HloOpcode::kRemainder:
    case HloOpcode::kSubtract:
    case HloOpcode::kXor:
      return 2;
    case HloOpcode::kClamp:
    case HloOpcode::kSelect:
      return 3;
    default:
      return 0;
  }
}

bool HasOneValue(const xla::ShapeProto& shape) {
  switch (shape.element_type()) {
    case xla::F32:
    case xla::S32:
    case xla::PRED:
      return std::all_of(shape.dimensions().begin(), shape.dimensions().end(),
                         [](int64_t size) { return size == 1; });
    default:
      return false;
  }
}

// XlaBuilder's programs refer to instructions by the lower half of their ids.
int64_t LocalId(int64_t id) { return id & std::numeric_limits<uint32_t>::max(); }

// Builds the program on rows from the program on single values: every value becomes a row.
class RowProgramBuilder {
 public:
  RowProgramBuilder(const xla::HloComputationProto& program, int64_t width)
      : program_(program), width_(width) {}

  absl::StatusOr<std::unique_ptr<xla::HloModule>> Build() {
    for (const HloInstructionProto& instruction : program_.instructions()) {
      TF_RETURN_IF_ERROR(Add(instruction));
    }
    const auto root = rows_.find(LocalId(program_.root_id()));
    if (root == rows_.end() || root->second->opcode() != HloOpcode::kTuple) {
      return Refuse("no tuple as its root", "a tuple of the new parameters and slots");
    }
    auto module = std::make_unique<xla::HloModule>("update_row", xla::HloModuleConfig());
    module->AddEntryComputation(builder_.Build(root->second));
    return module;
  }

 private:
  Shape Row(xla::PrimitiveType type) const { return ShapeUtil::MakeShape(type, {width_}); }

  HloInstruction* Broadcast(HloInstruction* value) {
    return builder_.AddInstruction(
        HloInstruction::CreateBroadcast(Row(value->shape().element_type()), value, {}));
  }

  absl::Status Add(const HloInstructionProto& instruction) {
    const auto opcode = xla::StringToHloOpcode(instruction.opcode());
    if (!opcode.ok()) return Refuse(instruction, "an operation of XLA");
    std::vector<HloInstruction*> operands;
    for (const int64_t id : instruction.operand_ids()) {
      const auto operand = rows_.find(LocalId(id));
      if (operand == rows_.end() || operand->second->opcode() == HloOpcode::kTuple) {
        return Refuse(instruction, "operands that are values and come before it");
      }
      operands.push_back(operand->second);
    }
    if (*opcode == HloOpcode::kTuple) {
      rows_[LocalId(instruction.id())] =
          builder_.AddInstruction(HloInstruction::CreateTuple(operands));
      return absl::OkStatus();
    }
    if (!HasOneValue(instruction.shape())) {
      return Refuse(instruction, "float32 values of the shape (1, 1)");
    }
    TF_ASSIGN_OR_RETURN(rows_[LocalId(instruction.id())], AddValue(instruction, *opcode, operands));
    return absl::OkStatus();
  }

  absl::StatusOr<HloInstruction*> AddValue(const HloInstructionProto& instruction, HloOpcode opcode,
                                           const std::vector<HloInstruction*>& operands) {
    if (opcode == HloOpcode::kParameter) return AddParameter(instruction);
    if (opcode == HloOpcode::kConstant) return AddConstant(instruction);
    if (KeepsItsValue(opcode) && operands.size() == 1) return operands[0];
    const size_t arity = ElementwiseArity(opcode);
    if (arity == 0) return Refuse(instruction, "only elementwise operations");
    if (operands.size() != arity) return Refuse(instruction, absl::StrCat(arity, " operands"));
    switch (arity) {
      case 1:
        return AddUnary(instruction, opcode, operands[0]);
      case 2:
        return AddBinary(instruction, opcode, operands[0], operands[1]);
      default: {
        TF_ASSIGN_OR_RETURN(const Shape shape, ShapeInference::InferTernaryOpShape(
                                                   opcode, operands[0], operands[1], operands[2]));
        return builder_.AddInstruction(
            HloInstruction::CreateTernary(shape, opcode, operands[0], operands[1], operands[2]));
      }
    }
  }

  absl::StatusOr<HloInstruction*> AddParameter(const HloInstructionProto& instruction) {
    // The learning rate is a scalar and may have no dimensions, but it becomes a row all the same.
    if (instruction.shape().element_type() != xla::F32 || instruction.parameter_number() < 0 ||
        instruction.parameter_number() >= std::numeric_limits<int32_t>::max()) {
      return Refuse(instruction, "float32 parameters, counted from zero");
    }
    return builder_.AddInstruction(HloInstruction::CreateParameter(
        instruction.parameter_number(), Row(xla::F32), instruction.name()));
  }

  absl::StatusOr<HloInstruction*> AddConstant(const HloInstructionProto& instruction) {
    const xla::LiteralProto& literal = instruction.literal();
    xla::Literal value;
    switch (instruction.shape().element_type()) {
      case xla::F32:
        if (literal.f32s_size() == 1) value = xla::LiteralUtil::CreateR0(literal.f32s(0));
        break;
      case xla::S32:
        if (literal.s32s_size() == 1) value = xla::LiteralUtil::CreateR0(literal.s32s(0));
        break;
      default:
        if (literal.preds_size() == 1) value = xla::LiteralUtil::CreateR0(literal.preds(0));
        break;
    }
    if (value.shape().element_type() != instruction.shape().element_type()) {
      return Refuse(instruction, "a constant of one value");
    }
    return Broadcast(builder_.AddInstruction(HloInstruction::CreateConstant(std::move(value))));
  }

  absl::StatusOr<HloInstruction*> AddUnary(const HloInstructionProto& instruction, HloOpcode opcode,
                                           HloInstruction* operand) {
    if (opcode == HloOpcode::kConvert) {
      return builder_.AddInstruction(
          HloInstruction::CreateConvert(Row(instruction.shape().element_type()), operand));
    }
    TF_ASSIGN_OR_RETURN(const Shape shape, ShapeInference::InferUnaryOpShape(opcode, operand));
    return builder_.AddInstruction(HloInstruction::CreateUnary(shape, opcode, operand));
  }

  absl::StatusOr<HloInstruction*> AddBinary(const HloInstructionProto& instruction,
                                            HloOpcode opcode, HloInstruction* left,
                                            HloInstruction* right) {
    TF_ASSIGN_OR_RETURN(const Shape shape, ShapeInference::InferBinaryOpShape(opcode, left, right));
    if (opcode == HloOpcode::kCompare) {
      TF_ASSIGN_OR_RETURN(const xla::ComparisonDirection direction,
                          xla::StringToComparisonDirection(instruction.comparison_direction()));
      return builder_.AddInstruction(HloInstruction::CreateCompare(shape, left, right, direction));
    }
    return builder_.AddInstruction(HloInstruction::CreateBinary(shape, opcode, left, right));
  }

  const xla::HloComputationProto& program_;
  const int64_t width_;
  xla::HloComputation::Builder builder_{"update_row"};
  absl::flat_hash_map<int64_t, HloInstruction*> rows_;
};

// The numbers of the parameters must be 0, 1, ...: XLA's own structures take that for granted.
absl::StatusOr<int64_t> CountParameters(const xla::HloComputationProto& program) {
  std::vector<int64_t> numbers;
  for (const HloInstructionProto& instruction : program.instructions()) {
    if (instruction.opcode() == "parameter") numbers.push_back(instruction.parameter_number());
  }
  std::sort(numbers.begin(), numbers.end());
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] != static_cast<int64_t>(i)) {
      return Refuse("parameters that are not numbered 0, 1, ...", "each number once");
    }
  }
  return static_cast<int64_t>(numbers.size());
}

absl::StatusOr<const xla::HloComputationProto*> FindEntry(const xla::HloModuleProto& program) {
  for (const xla::HloComputationProto& computation : program.computations()) {
    if (computation.id() == program.entry_computation_id()) return &computation;
  }
  return Refuse("no entry computation", "an HloModuleProto with one");
}

}  // namespace

UpdateProgram::UpdateProgram(std::unique_ptr<const xla::HloModule> row_program, int64_t width,
                             int64_t num_slots, bool takes_rate)
    : row_program_(std::move(row_program)),
      width_(width),
      num_slots_(num_slots),
      takes_rate_(takes_rate) {}

UpdateProgram::~UpdateProgram() = default;

absl::StatusOr<std::shared_ptr<const UpdateProgram>> UpdateProgram::Create(
    const xla::HloModuleProto& program, int64_t width) {
  TF_ASSIGN_OR_RETURN(const xla::HloComputationProto* const entry, FindEntry(program));
  TF_ASSIGN_OR_RETURN(const int64_t num_arguments, CountParameters(*entry));
  TF_ASSIGN_OR_RETURN(std::unique_ptr<xla::HloModule> rows,
                      RowProgramBuilder(*entry, width).Build());
  const Shape& results = rows->result_shape();
  const int64_t num_results = static_cast<int64_t>(results.tuple_shapes().size());
  const int64_t num_rates = num_arguments - 1 - num_results;
  if (num_results < 1 || num_rates < 0 || num_rates > 1) {
    return Refuse(absl::StrCat(num_arguments, " parameters and ", num_results, " results"),
                  "the gradient, the table, its slots and optionally the learning rate as "
                  "parameters, and the new table and slots as results");
  }
  for (const Shape& result : results.tuple_shapes()) {
    if (result.element_type() == xla::F32) continue;
    return Refuse(
        absl::StrCat("a result of the type ", xla::PrimitiveType_Name(result.element_type())),
        "float32");
  }
  std::shared_ptr<const UpdateProgram> update(
      new UpdateProgram(std::move(rows), width, num_results - 1, num_rates == 1));
  // Whether a row can be evaluated does not depend on its values.
  const std::vector<float> gradient(width, 0.0f);
  std::vector<float> zeros(width, 0.0f);
  const std::vector<float*> slots(num_results - 1, zeros.data());
  TF_RETURN_IF_ERROR(update->Evaluate(gradient, 0, zeros.data(), slots).status());
  return update;
}

absl::Status UpdateProgram::CheckSlots(size_t num_slots) const {
  if (static_cast<size_t>(num_slots_) == num_slots) return absl::OkStatus();
  return Refuse(absl::StrCat("a host_program_shape with ", num_slots,
                             " slots and an entry computation with ", num_slots_),
                "the same number");
}

xla::Literal UpdateProgram::Padded(absl::Span<const float> values) const {
  std::vector<float> padded(values.begin(), values.end());
  padded.resize(width_, 0.0f);
  return xla::LiteralUtil::CreateR1<float>(padded);
}

absl::StatusOr<xla::Literal> UpdateProgram::Evaluate(absl::Span<const float> gradient,
                                                     float learning_rate, const float* parameters,
                                                     absl::Span<float* const> slots) const {
  const size_t size = gradient.size();
  std::vector<xla::Literal> arguments;
  arguments.reserve(3 + slots.size());
  arguments.push_back(Padded(gradient));
  arguments.push_back(Padded(absl::MakeConstSpan(parameters, size)));
  for (const float* slot : slots) arguments.push_back(Padded(absl::MakeConstSpan(slot, size)));
  if (takes_rate_) arguments.push_back(Padded(std::vector<float>(size, learning_rate)));
  std::vector<const xla::Literal*> pointers;
  pointers.reserve(arguments.size());
  for (const xla::Literal& argument : arguments) pointers.push_back(&argument);
  return xla::HloEvaluator().Evaluate(*row_program_->entry_computation(), pointers);
}

void UpdateProgram::Apply(absl::Span<const float> gradient, float learning_rate, float* parameters,
                          absl::Span<float* const> slots) const {
  const auto results = Evaluate(gradient, learning_rate, parameters, slots);
  for (int64_t i = 0; i <= num_slots_; ++i) {
    float* const row = i == 0 ? parameters : slots[i - 1];
    if (results.ok()) {
      std::copy_n(results->data<float>({i}).begin(), gradient.size(), row);
    } else {
      std::fill_n(row, gradient.size(), std::numeric_limits<float>::quiet_NaN());
    }
  }
  if (!results.ok()) LOG(ERROR) << "The update of an embedding failed: " << results.status();
}

}  // namespace tf_tpu_ext
