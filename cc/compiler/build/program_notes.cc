#include "cc/compiler/build/program_notes.h"

#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "cc/program/host_call.h"
#include "cc/program/transfer_call.h"
#include "xla/hlo/ir/hlo_casting_utils.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_instructions.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/shape_util.h"

namespace tf_tpu_ext {
namespace {

using xla::HloComputation;
using xla::HloInstruction;
using xla::HloOpcode;

// tf2xla's own ops for a program's inputs and outputs.
constexpr char kArgumentsOp[] = "XLA_Args";
constexpr char kResultsOp[] = "XLA_Retvals";

// The rows and columns of a tile in a matrix unit, and the number of sublanes of a vector.
constexpr int64_t kLanes = 128;
constexpr int64_t kSublanes = 8;
// Products that use less than this fraction are noted.
constexpr double kLeastUse = 0.25;

// The name of a type that TPUs don't compute in natively. Empty for all others.
std::string EmulatedType(xla::PrimitiveType type) {
  switch (type) {
    case xla::F64:
      return "float64";
    case xla::S64:
      return "int64";
    case xla::U64:
      return "uint64";
    case xla::C128:
      return "complex128";
    default:
      return "";
  }
}

bool Computes(const HloInstruction& instruction) {
  switch (instruction.opcode()) {
    case HloOpcode::kTuple:
    case HloOpcode::kGetTupleElement:
    case HloOpcode::kConstant:
    case HloOpcode::kParameter:
    case HloOpcode::kWhile:
    case HloOpcode::kConditional:
      return false;
    default:
      return true;
  }
}

// Through one of our custom calls, or through XLA's transfers in a program for a target. Infeed and
// outfeed don't wait for the host as long as their queues keep up.
bool CallsHost(const HloInstruction& instruction) {
  if (instruction.opcode() == HloOpcode::kCustomCall) {
    const std::string& target = instruction.custom_call_target();
    return target == kHostCallTarget || target == kTransferTarget;
  }
  return (instruction.opcode() == HloOpcode::kSend || instruction.opcode() == HloOpcode::kRecv) &&
         xla::Cast<xla::HloSendRecvInstruction>(&instruction)->is_host_transfer();
}

// The computations that loops of the module run.
absl::flat_hash_set<const HloComputation*> InLoops(const xla::HloModule& module) {
  std::vector<const HloComputation*> open;
  for (const HloComputation* computation : module.computations()) {
    for (const HloInstruction* instruction : computation->instructions()) {
      if (instruction->opcode() != HloOpcode::kWhile) continue;
      open.push_back(instruction->while_body());
      open.push_back(instruction->while_condition());
    }
  }
  absl::flat_hash_set<const HloComputation*> reached;
  while (!open.empty()) {
    const HloComputation* const computation = open.back();
    open.pop_back();
    if (!reached.insert(computation).second) continue;
    for (const HloInstruction* instruction : computation->instructions()) {
      for (const HloComputation* called : instruction->called_computations()) {
        open.push_back(called);
      }
    }
  }
  return reached;
}

double Filled(int64_t size, int64_t tile) {
  const int64_t tiles = (size + tile - 1) / tile;
  return size == 0 ? 1.0 : static_cast<double>(size) / static_cast<double>(tiles * tile);
}

// The fraction of the matrix unit that a product uses. Its last two dimensions and those that it
// sums over are padded to whole tiles.
double UseOfMatrixUnit(const HloInstruction& dot) {
  const xla::Shape& result = dot.shape();
  const int rank = static_cast<int>(result.dimensions().size());
  double use = 1.0;
  if (rank > 0) use *= Filled(result.dimensions(rank - 1), kLanes);
  if (rank > 1) use *= Filled(result.dimensions(rank - 2), kSublanes);
  int64_t summed = 1;
  for (int64_t dimension : dot.dot_dimension_numbers().lhs_contracting_dimensions()) {
    summed *= dot.operand(0)->shape().dimensions(static_cast<int>(dimension));
  }
  return use * Filled(summed, kLanes);
}

// Inlined functions have several names. The last one is the complete one.
std::string OpOf(const HloInstruction& instruction) {
  const std::string& names = instruction.metadata().op_name();
  return names.substr(names.rfind(';') + 1);
}

class Notes {
 public:
  explicit Notes(const OpLines& lines) : lines_(lines) {}

  void Add(const char* kind, const std::string& what, const HloInstruction& instruction) {
    ProgramNote& note = notes_[{kind, what}];
    ++note.count;
    if (!note.source.empty()) return;
    const std::string op = OpOf(instruction);
    const std::string source = lines_.Find(op).Text();
    if (note.op.empty() || !source.empty()) note.op = op;
    note.source = source;
  }

  std::vector<ProgramNote> Take() {
    std::vector<ProgramNote> taken;
    for (auto& [name, note] : notes_) {
      std::tie(note.kind, note.what) = name;
      taken.push_back(std::move(note));
    }
    return taken;
  }

 private:
  const OpLines& lines_;
  std::map<std::pair<std::string, std::string>, ProgramNote> notes_;
};

void AddNotesOf(const HloInstruction& instruction, bool in_loop, Notes* notes) {
  if (in_loop && CallsHost(instruction)) notes->Add("host call in a loop", "", instruction);
  if (instruction.opcode() == HloOpcode::kDot && UseOfMatrixUnit(instruction) < kLeastUse) {
    notes->Add("small product",
               absl::StrCat(xla::ShapeUtil::HumanString(instruction.operand(0)->shape()), " x ",
                            xla::ShapeUtil::HumanString(instruction.operand(1)->shape())),
               instruction);
  }
  if (!Computes(instruction)) return;
  xla::ShapeUtil::ForEachSubshape(
      instruction.shape(), [&](const xla::Shape& shape, const xla::ShapeIndex& /*index*/) {
        if (!shape.IsArray()) return;
        const std::string emulated = EmulatedType(shape.element_type());
        if (!emulated.empty()) notes->Add("emulated", emulated, instruction);
        if (shape.is_dynamic()) {
          notes->Add("dynamic", xla::ShapeUtil::HumanString(shape), instruction);
        }
      });
}

}  // namespace

std::string FirstOp(const xla::HloModule& module) {
  for (const HloInstruction* instruction : module.entry_computation()->instructions()) {
    const std::string op = OpOf(*instruction);
    if (!op.empty() && op != kArgumentsOp && op != kResultsOp) return op;
  }
  return "";
}

std::vector<ProgramNote> NotesOf(const xla::HloModule& module, const OpLines& lines) {
  Notes notes(lines);
  const auto in_loops = InLoops(module);
  for (const HloComputation* computation : module.computations()) {
    const bool in_loop = in_loops.contains(computation);
    for (const HloInstruction* instruction : computation->instructions()) {
      AddNotesOf(*instruction, in_loop, &notes);
    }
  }
  return notes.Take();
}

}  // namespace tf_tpu_ext
