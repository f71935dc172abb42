// The TPU and TPU_SYSTEM devices: cores that use the host's memory.
#ifndef TF_TPU_EXT_CC_DEVICE_VIRTUAL_DEVICE_H_
#define TF_TPU_EXT_CC_DEVICE_VIRTUAL_DEVICE_H_

#include <memory>
#include <optional>
#include <string>

#include "tensorflow/core/common_runtime/local_device.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/lib/core/refcount.h"
#include "tensorflow/core/platform/threadpool.h"
#include "tensorflow/core/public/session_options.h"

namespace tf_tpu_ext {

class CoreThreads;

inline constexpr char kTpuDeviceType[] = "TPU";
inline constexpr char kTpuSystemDeviceType[] = "TPU_SYSTEM";

// The number of the core whose device has that name, such as "/device:TPU:3".
std::optional<int> CoreOfDevice(const std::string& device);

// Tensors are passed between host and core by reference: both live in host memory.
class HostMemoryContext : public tensorflow::DeviceContext {
 public:
  void CopyCPUTensorToDevice(const tensorflow::Tensor* cpu_tensor, tensorflow::Device* device,
                             tensorflow::Tensor* device_tensor, tensorflow::StatusCallback done,
                             bool sync_dst_compute) const override;
  void CopyTensorInSameDevice(const tensorflow::Tensor* input, tensorflow::Device* device,
                              tensorflow::Tensor* output,
                              tensorflow::StatusCallback done) const override;
  void CopyDeviceTensorToCPU(const tensorflow::Tensor* device_tensor, absl::string_view edge_name,
                             tensorflow::Device* device, tensorflow::Tensor* cpu_tensor,
                             tensorflow::StatusCallback done) override;
};

class VirtualDevice : public tensorflow::LocalDevice {
 public:
  // The ops of a core run on `core_threads`, which must outlive the device.
  VirtualDevice(const tensorflow::SessionOptions& options,
                const tensorflow::DeviceAttributes& attributes, CoreThreads* core_threads);
  ~VirtualDevice() override;

  tensorflow::Allocator* GetAllocator(tensorflow::AllocatorAttributes attributes) override;
  absl::Status Sync() override;
  absl::Status MakeTensorFromProto(const tensorflow::TensorProto& proto,
                                   const tensorflow::AllocatorAttributes attributes,
                                   tensorflow::Tensor* tensor) override;
  void CopyTensorInSameDevice(const tensorflow::Tensor* input, tensorflow::Tensor* output,
                              const tensorflow::DeviceContext* context,
                              tensorflow::StatusCallback done) override;
  absl::Status TryGetDeviceContext(tensorflow::DeviceContext** context) override;

 private:
  tensorflow::core::RefCountPtr<HostMemoryContext> context_;
  tensorflow::DeviceBase::AcceleratorDeviceInfo info_;
  // Wraps CoreThreads for TensorFlow; set only for a core.
  std::unique_ptr<tensorflow::thread::ThreadPool> threads_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_DEVICE_VIRTUAL_DEVICE_H_
