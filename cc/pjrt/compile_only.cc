#include "cc/pjrt/compile_only.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"
#include "xla/xla.pb.h"

namespace tf_tpu_ext {
namespace {

using Executable = std::shared_ptr<PJRT_Executable>;

absl::StatusOr<std::map<std::string, int64_t>> MemoryOf(const PjrtPlugin& plugin,
                                                        const Executable& executable) {
  TF_TPU_EXT_PJRT_ARGS(PJRT_Executable_GetCompiledMemoryStats_Args, args);
  args.executable = executable.get();
  TF_RETURN_IF_ERROR(plugin.Take(plugin.api().PJRT_Executable_GetCompiledMemoryStats(&args)));
  return std::map<std::string, int64_t>{
      {"argument", args.argument_size_in_bytes},
      {"output", args.output_size_in_bytes},
      {"alias", args.alias_size_in_bytes},
      {"temp", args.temp_size_in_bytes},
      {"generated_code", args.generated_code_size_in_bytes},
  };
}

absl::StatusOr<std::map<std::string, double>> CostsOf(const PjrtPlugin& plugin,
                                                      const Executable& executable) {
  TF_TPU_EXT_PJRT_ARGS(PJRT_Executable_GetCostAnalysis_Args, args);
  args.executable = executable.get();
  TF_RETURN_IF_ERROR(plugin.Take(plugin.api().PJRT_Executable_GetCostAnalysis(&args)));
  std::map<std::string, double> costs;
  for (size_t i = 0; i < args.num_properties; ++i) {
    const PJRT_NamedValue& property = args.properties[i];
    if (property.type != PJRT_NamedValue_kFloat) continue;
    costs.emplace(std::string(property.name, property.name_size), property.float_value);
  }
  return costs;
}

absl::Status ReadOptimized(const PjrtPlugin& plugin, const Executable& executable,
                           CompiledForDevice* compiled) {
  TF_TPU_EXT_PJRT_ARGS(PJRT_Program, program);
  TF_TPU_EXT_PJRT_ARGS(PJRT_Executable_OptimizedProgram_Args, args);
  args.executable = executable.get();
  args.program = &program;
  // The first call returns the size, the second fills in the text.
  TF_RETURN_IF_ERROR(plugin.Take(plugin.api().PJRT_Executable_OptimizedProgram(&args)));
  compiled->optimized.resize(program.code_size);
  program.code = compiled->optimized.data();
  TF_RETURN_IF_ERROR(plugin.Take(plugin.api().PJRT_Executable_OptimizedProgram(&args)));
  const absl::string_view format(program.format, program.format_size);
  if (format == "hlo") return absl::OkStatus();
  xla::HloModuleProtoWithConfig with_config;
  if (format != "hlo_with_config" || !with_config.ParseFromString(compiled->optimized) ||
      !with_config.hlo_module().SerializeToString(&compiled->optimized)) {
    return absl::InternalError(
        absl::StrCat("The compiler's module, of format ", format, ", can't be read."));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PjrtTopology> PjrtTopology::Create(const PjrtPlugin& plugin, const std::string& name,
                                                  const std::string& chip_config) {
  TF_TPU_EXT_PJRT_ARGS(PJRT_TopologyDescription_Create_Args, args);
  args.topology_name = name.data();
  args.topology_name_size = name.size();
  TF_TPU_EXT_PJRT_ARGS(PJRT_NamedValue, option);
  constexpr absl::string_view kChipConfig = "chip_config_name";
  option.name = kChipConfig.data();
  option.name_size = kChipConfig.size();
  option.type = PJRT_NamedValue_kString;
  option.string_value = chip_config.data();
  option.value_size = chip_config.size();
  args.create_options = &option;
  args.num_options = chip_config.empty() ? 0 : 1;
  TF_RETURN_IF_ERROR(plugin.Take(plugin.api().PJRT_TopologyDescription_Create(&args)));
  const auto destroy = [plugin](PJRT_TopologyDescription* topology) {
    TF_TPU_EXT_PJRT_ARGS(PJRT_TopologyDescription_Destroy_Args, args);
    args.topology = topology;
    plugin.Take(plugin.api().PJRT_TopologyDescription_Destroy(&args)).IgnoreError();
  };
  return PjrtTopology(plugin, {args.topology, destroy});
}

absl::StatusOr<std::map<std::string, int64_t>> PjrtTopology::Attributes() const {
  TF_TPU_EXT_PJRT_ARGS(PJRT_TopologyDescription_GetDeviceDescriptions_Args, devices);
  devices.topology = topology_.get();
  TF_RETURN_IF_ERROR(
      plugin_.Take(plugin_.api().PJRT_TopologyDescription_GetDeviceDescriptions(&devices)));
  std::map<std::string, int64_t> attributes;
  attributes["devices"] = static_cast<int64_t>(devices.num_descriptions);
  TF_TPU_EXT_PJRT_ARGS(PJRT_TopologyDescription_Attributes_Args, args);
  args.topology = topology_.get();
  TF_RETURN_IF_ERROR(plugin_.Take(plugin_.api().PJRT_TopologyDescription_Attributes(&args)));
  for (size_t i = 0; i < args.num_attributes; ++i) {
    const PJRT_NamedValue& attribute = args.attributes[i];
    if (attribute.type != PJRT_NamedValue_kInt64) continue;
    attributes.emplace(std::string(attribute.name, attribute.name_size), attribute.int64_value);
  }
  return attributes;
}

absl::StatusOr<CompiledForDevice> PjrtTopology::Compile(std::string module,
                                                        const std::string& options) const {
  TF_TPU_EXT_PJRT_ARGS(PJRT_Program, program);
  program.code = module.data();
  program.code_size = module.size();
  program.format = "hlo";
  program.format_size = 3;
  TF_TPU_EXT_PJRT_ARGS(PJRT_Compile_Args, args);
  args.topology = topology_.get();
  args.program = &program;
  args.compile_options = options.data();
  args.compile_options_size = options.size();
  TF_RETURN_IF_ERROR(plugin_.Take(plugin_.api().PJRT_Compile(&args)));
  const Executable executable(args.executable, [this](PJRT_Executable* executable) {
    TF_TPU_EXT_PJRT_ARGS(PJRT_Executable_Destroy_Args, destroy);
    destroy.executable = executable;
    plugin_.Take(plugin_.api().PJRT_Executable_Destroy(&destroy)).IgnoreError();
  });
  CompiledForDevice compiled;
  TF_ASSIGN_OR_RETURN(compiled.memory, MemoryOf(plugin_, executable));
  TF_ASSIGN_OR_RETURN(compiled.costs, CostsOf(plugin_, executable));
  TF_RETURN_IF_ERROR(ReadOptimized(plugin_, executable, &compiled));
  return compiled;
}

}  // namespace tf_tpu_ext
