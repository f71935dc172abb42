// Programs of XLA's client for the CPU. From 2.21 on, it can compile without loading; before, it
// loads whatever it compiles.
#ifndef TF_TPU_EXT_CC_ABI_XLA_CPU_CLIENT_H_
#define TF_TPU_EXT_CC_ABI_XLA_CPU_CLIENT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cc/abi/xla/minor.h"
#include "xla/hlo/builder/xla_computation.h"
#include "xla/pjrt/cpu/cpu_client.h"
#include "xla/pjrt/pjrt_client.h"
#include "xla/pjrt/pjrt_executable.h"
#include "xla/service/computation_placer.h"
#include "xla/service/executable.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {

#if TF_TPU_EXT_TENSORFLOW_MINOR >= 21

using CompiledByClient = std::unique_ptr<xla::PjRtExecutable>;

inline absl::StatusOr<CompiledByClient> CompileByClient(xla::PjRtClient& client,
                                                        const xla::XlaComputation& computation,
                                                        const xla::CompileOptions& options) {
  return client.Compile(computation, options);
}

inline std::shared_ptr<xla::Executable> CpuExecutableOf(const xla::PjRtExecutable& compiled) {
  return static_cast<const xla::PjRtCpuExecutable&>(compiled).cpu_executable();
}

inline std::shared_ptr<xla::Executable> CpuExecutableOfLoaded(
    const xla::PjRtLoadedExecutable& loaded) {
  return CpuExecutableOf(*loaded.GetExecutable());
}

#else

using CompiledByClient = std::unique_ptr<xla::PjRtLoadedExecutable>;

// Names devices of the client in place of other hosts': loading takes no others. A run says where
// it runs.
inline xla::CompileOptions OnDevicesOf(xla::PjRtClient& client, xla::CompileOptions options) {
  xla::ExecutableBuildOptions& build = options.executable_build_options;
  if (build.has_device_assignment()) {
    xla::DeviceAssignment assignment = build.device_assignment();
    for (int64_t& device : assignment) device %= client.device_count();
    build.set_device_assignment(assignment);
  }
  return options;
}

inline absl::StatusOr<CompiledByClient> CompileByClient(xla::PjRtClient& client,
                                                        const xla::XlaComputation& computation,
                                                        const xla::CompileOptions& given) {
  const xla::CompileOptions options = OnDevicesOf(client, given);
#if TF_TPU_EXT_TENSORFLOW_MINOR >= 20
  return client.CompileAndLoad(computation, options);
#else
  return client.Compile(computation, options);
#endif
}

inline std::shared_ptr<xla::Executable> CpuExecutableOf(const xla::PjRtLoadedExecutable& compiled) {
#if TF_TPU_EXT_TENSORFLOW_MINOR >= 20
  using Compiled = xla::PjRtCpuExecutable;
#else
  using Compiled = xla::TfrtCpuExecutable;
#endif
  return static_cast<const Compiled&>(compiled).cpu_executable();
}

inline std::shared_ptr<xla::Executable> CpuExecutableOfLoaded(
    const xla::PjRtLoadedExecutable& loaded) {
  return CpuExecutableOf(loaded);
}

#endif

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_ABI_XLA_CPU_CLIENT_H_
