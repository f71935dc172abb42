#include "cc/device/device_factory.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cc/base/machine.h"
#include "cc/device/virtual_device.h"
#include "tensorflow/core/common_runtime/device_factory.h"

namespace tf_tpu_ext {
namespace {

// Below the CPU's priority, so that ops without a device stay on the CPU.
constexpr int kPriority = 50;
constexpr int64_t kCoreMemoryBytes = int64_t{16} << 30;

class VirtualDeviceFactory : public tensorflow::DeviceFactory {
 public:
  VirtualDeviceFactory(std::string type, Machine* machine,
                       std::function<CoreThreads*()> core_threads)
      : type_(std::move(type)), machine_(*machine), core_threads_(std::move(core_threads)) {}

  absl::Status ListPhysicalDevices(std::vector<std::string>* devices) override {
    for (int i = 0; i < DeviceCount(); ++i) {
      devices->push_back(absl::StrCat("/physical_device:", type_, ":", i));
    }
    return absl::OkStatus();
  }

  absl::Status CreateDevices(const tensorflow::SessionOptions& options,
                             const std::string& name_prefix,
                             std::vector<std::unique_ptr<tensorflow::Device>>* devices) override {
    // First, because this fixes the number of cores.
    machine_.MarkDevicesCreated();
    for (int i = 0; i < DeviceCount(); ++i) {
      tensorflow::DeviceAttributes attributes = tensorflow::Device::BuildDeviceAttributes(
          absl::StrCat(name_prefix, "/device:", type_, ":", i), tensorflow::DeviceType(type_),
          tensorflow::Bytes(kCoreMemoryBytes), tensorflow::DeviceLocality(), "virtual TPU core");
      if (type_ == kTpuDeviceType) attributes.set_xla_global_id(i);
      devices->push_back(std::make_unique<VirtualDevice>(options, attributes, core_threads_()));
    }
    return absl::OkStatus();
  }

 private:
  int DeviceCount() const {
    const MachineOptions options = machine_.options();
    if (!options.local_devices) return 0;
    return type_ == kTpuDeviceType ? options.cores : 1;
  }

  const std::string type_;
  Machine& machine_;
  const std::function<CoreThreads*()> core_threads_;
};

}  // namespace

void RegisterDeviceFactories(Machine* machine, const std::function<CoreThreads*()>& core_threads) {
  for (const char* type : {kTpuSystemDeviceType, kTpuDeviceType}) {
    tensorflow::DeviceFactory::Register(
        type, std::make_unique<VirtualDeviceFactory>(type, machine, core_threads), kPriority,
        /*is_pluggable_device=*/false);
  }
}

}  // namespace tf_tpu_ext
