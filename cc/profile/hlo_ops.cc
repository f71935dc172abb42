#include "cc/profile/hlo_ops.h"

#include <algorithm>

#include "absl/log/log.h"
#include "absl/strings/str_cat.h"
#include "tsl/profiler/lib/traceme_encode.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/service/hlo_cost_analysis.h"
#include "xla/shape_util.h"
#include "xla/tsl/profiler/utils/tf_op_utils.h"

namespace tf_tpu_ext {
namespace {

// What TensorFlow's bridge writes if a graph has no locations.
constexpr char kNoFile[] = "dummy_file_name";
// Instructions that contain constants may be long.
constexpr size_t kMaxText = 2000;

std::string Text(const xla::HloInstruction& instruction) {
  std::string text = instruction.ToString(
      xla::HloPrintOptions::ShortParsable().set_print_metadata(false).set_print_percent(true));
  if (text.size() > kMaxText) text = absl::StrCat(text.substr(0, kMaxText), "...");
  return text;
}

// Whether a profile also shows the ops inside, which are counted separately.
bool ConsistsOfOps(const xla::HloInstruction& instruction) {
  switch (instruction.opcode()) {
    case xla::HloOpcode::kWhile:
    case xla::HloOpcode::kConditional:
    case xla::HloOpcode::kCall:
      return true;
    default:
      return false;
  }
}

HloOp Describe(const xla::HloInstruction& instruction, const xla::HloCostAnalysis* costs) {
  HloOp op;
  op.text = Text(instruction);
  op.category = instruction.ToCategory();
  const xla::OpMetadata& metadata = instruction.metadata();
  if (!metadata.op_name().empty() && !metadata.op_type().empty()) {
    op.tf_op = tsl::profiler::TraceMeOp(metadata.op_name(), metadata.op_type());
  } else {
    op.tf_op = metadata.op_name();
  }
  if (!metadata.source_file().empty() && metadata.source_file() != kNoFile) {
    op.source = absl::StrCat(metadata.source_file(), ":", metadata.source_line());
  }
  op.has_parts = ConsistsOfOps(instruction);
  if (costs != nullptr && !op.has_parts) {
    op.flops = std::max<int64_t>(0, static_cast<int64_t>(costs->flop_count(instruction)));
    op.bytes_accessed =
        std::max<int64_t>(0, static_cast<int64_t>(costs->bytes_accessed(instruction)));
  }
  return op;
}

}  // namespace

HloOps DescribeOps(const xla::HloModule& module) {
  HloOps ops;
  for (const xla::HloComputation* computation : module.computations()) {
    if (computation->IsFusionComputation()) continue;
    // One for each computation, because it does not keep what it finds inside loops.
    xla::HloCostAnalysis costs(
        [](const xla::Shape& shape) { return xla::ShapeUtil::ByteSizeOf(shape, sizeof(void*)); });
    const absl::Status analyzed = computation->Accept(&costs);
    if (!analyzed.ok()) {
      LOG(WARNING) << "A profile has no costs for the ops of computation " << computation->name()
                   << " of " << module.name() << ": " << analyzed;
    }
    for (const xla::HloInstruction* instruction : computation->instructions()) {
      HloOp op = Describe(*instruction, analyzed.ok() ? &costs : nullptr);
      op.symbol = static_cast<int64_t>(ops.size()) + 1;
      ops.emplace(std::string(instruction->name()), std::move(op));
    }
  }
  return ops;
}

}  // namespace tf_tpu_ext
