#include "cc/compiler/hlo/module.h"

#include <utility>

#include "xla/hlo/ir/hlo_input_output_alias_config.h"
#include "xla/service/computation_layout.h"
#include "xla/service/hlo.pb.h"
#include "xla/service/hlo_module_config.h"
#include "xla/shape_layout.h"
#include "xla/tsl/platform/statusor.h"
#include "xla/xla.pb.h"

namespace tf_tpu_ext {

using xla::HloModule;

absl::StatusOr<std::unique_ptr<HloModule>> ToModule(const xla::XlaComputation& computation) {
  const xla::HloModuleProto& proto = computation.proto();
  TF_ASSIGN_OR_RETURN(const xla::HloModuleConfig config,
                      HloModule::CreateModuleConfigFromProto(proto, xla::DebugOptions()));
  return HloModule::CreateFromProto(proto, config);
}

xla::XlaComputation ToComputation(const HloModule& module) {
  xla::HloModuleProto proto = module.ToProto();
  // The compiler takes the shapes of parameters and results from this field.
  *proto.mutable_host_program_shape() =
      module.entry_computation_layout().ComputeProgramShape().ToProto();
  return xla::XlaComputation(std::move(proto));
}

std::unique_ptr<HloModule> EmptyModuleLike(const HloModule& module) {
  xla::HloModuleConfig config = module.config();
  // This layout belongs to the parameters and results of the other program.
  config.clear_entry_computation_layout();
  auto empty = std::make_unique<HloModule>(module.name(), std::move(config));
  empty->set_frontend_attributes(module.frontend_attributes());
  return empty;
}

void AddEntry(std::unique_ptr<xla::HloComputation> entry, HloModule* module) {
  module->AddEntryComputationWithLayouts(std::move(entry));
}

void ResultChanged(HloModule* module) {
  *module->mutable_entry_computation_layout()->mutable_result_layout() =
      xla::ShapeLayout(module->result_shape());
  module->set_input_output_alias_config(xla::HloInputOutputAliasConfig(module->result_shape()));
}

}  // namespace tf_tpu_ext
