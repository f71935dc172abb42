// For tests: a plugin whose answers the test decides.
#ifndef TF_TPU_EXT_CC_PJRT_PJRT_TESTING_H_
#define TF_TPU_EXT_CC_PJRT_PJRT_TESTING_H_

#include <cstring>
#include <string>

#include "xla/pjrt/c/pjrt_c_api.h"

// The C API leaves the definition of these to the plugin.
struct PJRT_Error {
  std::string message;
  PJRT_Error_Code code;
};
struct PJRT_TopologyDescription {};
struct PJRT_Executable {};

namespace tf_tpu_ext {

// What the plugin was asked, and how many of its objects still exist. Reset by MakeFakePlugin.
struct FakePlugin {
  PJRT_Api api{};
  std::string topology, chip_config, module, options;
  std::string refuses;  // the error of a compilation; empty for none
  int errors = 0, topologies = 0, executables = 0;
};

inline FakePlugin& TheFakePlugin() {
  static auto* const plugin = new FakePlugin;
  return *plugin;
}

inline PJRT_Error* FakeError(std::string message, PJRT_Error_Code code) {
  ++TheFakePlugin().errors;
  return new PJRT_Error{std::move(message), code};
}

inline void SetFakeErrors(PJRT_Api* api) {
  api->PJRT_Error_Message = [](PJRT_Error_Message_Args* args) {
    args->message = args->error->message.data();
    args->message_size = args->error->message.size();
  };
  api->PJRT_Error_GetCode = [](PJRT_Error_GetCode_Args* args) -> PJRT_Error* {
    args->code = args->error->code;
    return nullptr;
  };
  api->PJRT_Error_Destroy = [](PJRT_Error_Destroy_Args* args) {
    --TheFakePlugin().errors;
    delete args->error;
  };
}

inline void SetFakeTopologies(PJRT_Api* api) {
  api->PJRT_TopologyDescription_Create =
      [](PJRT_TopologyDescription_Create_Args* args) -> PJRT_Error* {
    FakePlugin& fake = TheFakePlugin();
    fake.topology.assign(args->topology_name, args->topology_name_size);
    if (fake.topology == "v9:1x1") return FakeError("no v9", PJRT_Error_Code_NOT_FOUND);
    if (args->num_options > 0) {
      const PJRT_NamedValue& option = args->create_options[0];
      fake.chip_config.assign(option.string_value, option.value_size);
    }
    ++fake.topologies;
    args->topology = new PJRT_TopologyDescription;
    return nullptr;
  };
  api->PJRT_TopologyDescription_Destroy =
      [](PJRT_TopologyDescription_Destroy_Args* args) -> PJRT_Error* {
    --TheFakePlugin().topologies;
    delete args->topology;
    return nullptr;
  };
  api->PJRT_TopologyDescription_GetDeviceDescriptions =
      [](PJRT_TopologyDescription_GetDeviceDescriptions_Args* args) -> PJRT_Error* {
    args->num_descriptions = 8;
    return nullptr;
  };
  api->PJRT_TopologyDescription_Attributes =
      [](PJRT_TopologyDescription_Attributes_Args* args) -> PJRT_Error* {
    static PJRT_NamedValue attributes[2];
    attributes[0].name = "device_memory_bytes_limit";
    attributes[0].name_size = std::strlen(attributes[0].name);
    attributes[0].type = PJRT_NamedValue_kInt64;
    attributes[0].int64_value = int64_t{16} << 30;
    attributes[1].name = "wrap";
    attributes[1].name_size = 4;
    attributes[1].type = PJRT_NamedValue_kInt64List;
    args->attributes = attributes;
    args->num_attributes = 2;
    return nullptr;
  };
}

inline void SetFakeExecutables(PJRT_Api* api) {
  api->PJRT_Compile = [](PJRT_Compile_Args* args) -> PJRT_Error* {
    FakePlugin& fake = TheFakePlugin();
    if (!fake.refuses.empty()) {
      return FakeError(fake.refuses, PJRT_Error_Code_RESOURCE_EXHAUSTED);
    }
    fake.module.assign(args->program->code, args->program->code_size);
    fake.options.assign(args->compile_options, args->compile_options_size);
    ++fake.executables;
    args->executable = new PJRT_Executable;
    return nullptr;
  };
  api->PJRT_Executable_Destroy = [](PJRT_Executable_Destroy_Args* args) -> PJRT_Error* {
    --TheFakePlugin().executables;
    delete args->executable;
    return nullptr;
  };
  api->PJRT_Executable_GetCompiledMemoryStats =
      [](PJRT_Executable_GetCompiledMemoryStats_Args* args) -> PJRT_Error* {
    args->argument_size_in_bytes = 100;
    args->alias_size_in_bytes = 40;
    return nullptr;
  };
  api->PJRT_Executable_GetCostAnalysis =
      [](PJRT_Executable_GetCostAnalysis_Args* args) -> PJRT_Error* {
    static PJRT_NamedValue flops;
    flops.name = "flops";
    flops.name_size = 5;
    flops.type = PJRT_NamedValue_kFloat;
    flops.float_value = 2.5;
    args->properties = &flops;
    args->num_properties = 1;
    return nullptr;
  };
  api->PJRT_Executable_OptimizedProgram =
      [](PJRT_Executable_OptimizedProgram_Args* args) -> PJRT_Error* {
    static constexpr char kOptimized[] = "optimized";
    args->program->format = "hlo";
    args->program->format_size = 3;
    args->program->code_size = std::strlen(kOptimized);
    if (args->program->code != nullptr) {
      std::memcpy(args->program->code, kOptimized, args->program->code_size);
    }
    return nullptr;
  };
}

inline FakePlugin& MakeFakePlugin() {
  FakePlugin& fake = TheFakePlugin() = FakePlugin();
  fake.api.struct_size = PJRT_Api_STRUCT_SIZE;
  fake.api.pjrt_api_version.major_version = PJRT_API_MAJOR;
  fake.api.pjrt_api_version.minor_version = PJRT_API_MINOR;
  fake.api.PJRT_Plugin_Initialize = [](PJRT_Plugin_Initialize_Args*) -> PJRT_Error* {
    return nullptr;
  };
  SetFakeErrors(&fake.api);
  SetFakeTopologies(&fake.api);
  SetFakeExecutables(&fake.api);
  return fake;
}

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PJRT_PJRT_TESTING_H_
