#include "cc/compiler/hlo/static_results.h"

#include <algorithm>
#include <memory>

#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/hlo/ir/hlo_sharding.h"
#include "xla/literal_util.h"
#include "xla/shape_util.h"

namespace tf_tpu_ext {
namespace {

using xla::HloInstruction;

bool HasDynamicResults(const xla::XlaComputation& computation) {
  auto program_shape = computation.GetProgramShape();
  return program_shape.ok() && program_shape->result().is_dynamic();
}

// The module's shapes as the compiler's front door wants them.
xla::HloModuleProto ToProto(xla::HloModule* module) {
  xla::HloModuleProto proto = module->ToProto();
  *proto.mutable_host_program_shape() =
      module->entry_computation_layout().ComputeProgramShape().ToProto();
  return proto;
}

}  // namespace

absl::StatusOr<StaticResults> MakeResultsStatic(const xla::XlaComputation& computation) {
  if (!HasDynamicResults(computation)) {
    return StaticResults{xla::XlaComputation(computation.proto()), {}};
  }
  auto config =
      xla::HloModule::CreateModuleConfigFromProto(computation.proto(), xla::DebugOptions());
  if (!config.ok()) return config.status();
  auto created = xla::HloModule::CreateFromProto(computation.proto(), *config);
  if (!created.ok()) return created.status();
  std::unique_ptr<xla::HloModule> module = *std::move(created);

  xla::HloComputation* entry = module->entry_computation();
  HloInstruction* root = entry->root_instruction();
  std::vector<HloInstruction*> results(root->operands().begin(), root->operands().end());
  std::vector<xla::HloSharding> shardings;
  if (root->has_sharding()) shardings = root->sharding().tuple_elements();
  std::vector<HloInstruction*> sizes;
  StaticResults made;
  made.dynamic_sizes.resize(results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    HloInstruction* dynamic = results[i];
    for (int d = 0; d < static_cast<int>(dynamic->shape().dimensions().size()); ++d) {
      if (!dynamic->shape().is_dynamic_dimension(d)) continue;
      made.dynamic_sizes[i].emplace_back(d, static_cast<int>(results.size() + sizes.size()));
      sizes.push_back(entry->AddInstruction(HloInstruction::CreateGetDimensionSize(
          xla::ShapeUtil::MakeShape(xla::S32, {}), dynamic, d)));
      if (!shardings.empty()) {
        shardings.push_back(shardings[i].IsTileMaximal() ? shardings[i]
                                                         : xla::HloSharding::Replicate());
      }
      xla::Shape padded = results[i]->shape();
      padded.set_dynamic_dimension(d, false);
      HloInstruction* bound = entry->AddInstruction(HloInstruction::CreateConstant(
          xla::LiteralUtil::CreateR0<int32_t>(padded.dimensions(d))));
      HloInstruction* fixed = entry->AddInstruction(
          HloInstruction::CreateSetDimensionSize(padded, results[i], bound, d));
      if (dynamic->has_sharding()) fixed->set_sharding(dynamic->sharding());
      results[i] = fixed;
    }
  }
  results.insert(results.end(), sizes.begin(), sizes.end());
  HloInstruction* tuple = entry->AddInstruction(HloInstruction::CreateTuple(results));
  if (!shardings.empty()) {
    tuple->set_sharding(xla::HloSharding::Tuple(tuple->shape(), shardings));
  }
  entry->set_root_instruction(tuple, /*accept_different_shape=*/true);
  if (absl::Status status = entry->RemoveInstruction(root); !status.ok()) return status;
  *module->mutable_entry_computation_layout()->mutable_result_layout() =
      xla::ShapeLayout(tuple->shape());
  made.computation = xla::XlaComputation(ToProto(module.get()));
  return made;
}

}  // namespace tf_tpu_ext
