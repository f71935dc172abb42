// Compiles programs for devices that are not present.
#ifndef TF_TPU_EXT_CC_PJRT_COMPILE_ONLY_H_
#define TF_TPU_EXT_CC_PJRT_COMPILE_ONLY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "cc/pjrt/plugin.h"
#include "xla/pjrt/c/pjrt_c_api.h"

namespace tf_tpu_ext {

// What the compiler has made of a program. All sizes are in bytes on one device.
struct CompiledForDevice {
  // Bytes by kind: "argument", "output", "alias" (arguments whose memory outputs reuse), "temp",
  // "generated_code".
  std::map<std::string, int64_t> memory;
  // What one run costs according to the compiler's own estimate: "flops", "bytes accessed",
  // "optimal_seconds" and others. Negative if the compiler does not know.
  std::map<std::string, double> costs;
  // A serialized HloModuleProto.
  std::string optimized;
};

// Devices, described by a name that the plugin defines, such as "v5e:2x2".
class PjrtTopology {
 public:
  // `chip_config` says how the cores of a chip act, such as "megacore" (as one); empty for the
  // plugin's default.
  static absl::StatusOr<PjrtTopology> Create(const PjrtPlugin& plugin, const std::string& name,
                                             const std::string& chip_config);

  // What the plugin says about all devices, and their number as "devices".
  absl::StatusOr<std::map<std::string, int64_t>> Attributes() const;

  // Compiles a serialized HloModuleProto with a serialized CompileOptionsProto.
  absl::StatusOr<CompiledForDevice> Compile(std::string module, const std::string& options) const;

 private:
  PjrtTopology(const PjrtPlugin& plugin, std::shared_ptr<PJRT_TopologyDescription> topology)
      : plugin_(plugin), topology_(std::move(topology)) {}

  PjrtPlugin plugin_;
  std::shared_ptr<PJRT_TopologyDescription> topology_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PJRT_COMPILE_ONLY_H_
