#include "cc/device/virtual_device.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cc/base/core_threads.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/util/device_name_utils.h"

namespace tf_tpu_ext {

using tensorflow::AllocatorAttributes;
using tensorflow::Device;
using tensorflow::DeviceContext;
using tensorflow::StatusCallback;
using tensorflow::Tensor;

std::optional<int> CoreOfDevice(const std::string& device) {
  tensorflow::DeviceNameUtils::ParsedName name;
  if (!tensorflow::DeviceNameUtils::ParseFullName(device, &name) || !name.has_type ||
      name.type != kTpuDeviceType || !name.has_id) {
    return std::nullopt;
  }
  return name.id;
}

void HostMemoryContext::CopyCPUTensorToDevice(const Tensor* cpu_tensor, Device* /*device*/,
                                              Tensor* device_tensor, StatusCallback done,
                                              bool /*sync_dst_compute*/) const {
  *device_tensor = *cpu_tensor;
  done(absl::OkStatus());
}

void HostMemoryContext::CopyTensorInSameDevice(const Tensor* input, Device* /*device*/,
                                               Tensor* output, StatusCallback done) const {
  *output = *input;
  done(absl::OkStatus());
}

void HostMemoryContext::CopyDeviceTensorToCPU(const Tensor* device_tensor,
                                              absl::string_view /*edge_name*/, Device* /*device*/,
                                              Tensor* cpu_tensor, StatusCallback done) {
  *cpu_tensor = *device_tensor;
  done(absl::OkStatus());
}

VirtualDevice::VirtualDevice(const tensorflow::SessionOptions& options,
                             const tensorflow::DeviceAttributes& attributes,
                             CoreThreads* core_threads)
    : LocalDevice(options, attributes), context_(new HostMemoryContext) {
  info_.default_context = context_.get();
  set_tensorflow_accelerator_device_info(&info_);
  if (device_type() != kTpuDeviceType) return;
  threads_ = std::make_unique<tensorflow::thread::ThreadPool>(core_threads);
  set_tensorflow_device_thread_pool(threads_.get());
}

VirtualDevice::~VirtualDevice() = default;

tensorflow::Allocator* VirtualDevice::GetAllocator(AllocatorAttributes /*attributes*/) {
  return tensorflow::cpu_allocator();
}

absl::Status VirtualDevice::Sync() { return absl::OkStatus(); }

absl::Status VirtualDevice::MakeTensorFromProto(const tensorflow::TensorProto& proto,
                                                const AllocatorAttributes /*attributes*/,
                                                Tensor* tensor) {
  Tensor parsed(proto.dtype());
  if (!parsed.FromProto(tensorflow::cpu_allocator(), proto)) {
    return absl::InvalidArgumentError(
        absl::StrCat("Cannot parse a tensor of type ", tensorflow::DataTypeString(proto.dtype()),
                     " for device ", name(), ": its TensorProto is malformed."));
  }
  *tensor = std::move(parsed);
  return absl::OkStatus();
}

void VirtualDevice::CopyTensorInSameDevice(const Tensor* input, Tensor* output,
                                           const DeviceContext* /*context*/, StatusCallback done) {
  *output = *input;
  done(absl::OkStatus());
}

absl::Status VirtualDevice::TryGetDeviceContext(DeviceContext** context) {
  context_->Ref();
  *context = context_.get();
  return absl::OkStatus();
}

}  // namespace tf_tpu_ext
