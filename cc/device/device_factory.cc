#include "cc/device/device_factory.h"

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

int DeviceCount(const std::string& type) {
  const MachineOptions options = GetMachineOptions();
  if (!options.local_devices) return 0;
  return type == kTpuDeviceType ? options.cores : 1;
}

class VirtualDeviceFactory : public tensorflow::DeviceFactory {
 public:
  explicit VirtualDeviceFactory(std::string type) : type_(std::move(type)) {}

  absl::Status ListPhysicalDevices(std::vector<std::string>* devices) override {
    for (int i = 0; i < DeviceCount(type_); ++i) {
      devices->push_back(absl::StrCat("/physical_device:", type_, ":", i));
    }
    return absl::OkStatus();
  }

  absl::Status CreateDevices(const tensorflow::SessionOptions& options,
                             const std::string& name_prefix,
                             std::vector<std::unique_ptr<tensorflow::Device>>* devices) override {
    MarkDevicesCreated();
    for (int i = 0; i < DeviceCount(type_); ++i) {
      tensorflow::DeviceAttributes attributes = tensorflow::Device::BuildDeviceAttributes(
          absl::StrCat(name_prefix, "/device:", type_, ":", i), tensorflow::DeviceType(type_),
          tensorflow::Bytes(kCoreMemoryBytes), tensorflow::DeviceLocality(), "virtual TPU core");
      if (type_ == kTpuDeviceType) attributes.set_xla_global_id(i);
      devices->push_back(std::make_unique<VirtualDevice>(options, attributes));
    }
    return absl::OkStatus();
  }

 private:
  const std::string type_;
};

}  // namespace

void RegisterDeviceFactories() {
  for (const char* type : {kTpuSystemDeviceType, kTpuDeviceType}) {
    tensorflow::DeviceFactory::Register(type, std::make_unique<VirtualDeviceFactory>(type),
                                        kPriority, /*is_pluggable_device=*/false);
  }
}

}  // namespace tf_tpu_ext
