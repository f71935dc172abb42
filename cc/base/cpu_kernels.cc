#include "cc/base/cpu_kernels.h"

#include <cstdint>
#include <exception>

#include "absl/strings/str_cat.h"
#include "cc/base/process.h"
#include "tensorflow/core/lib/strings/proto_serialization.h"
#include "tensorflow/core/public/version.h"
#include "xla/tsl/platform/errors.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::AllocatorAttributes;
using tensorflow::OpKernel;

// Attributes that identify the kernel's first output to the device that allocates it. The upper 8
// bits are reserved for the device.
AllocatorAttributes ResultAttributes() {
  AllocatorAttributes attributes;
  attributes.value = 1u << 24;
  return attributes;
}

}  // namespace

void* ResultAllocator::AllocateRaw(size_t alignment, size_t bytes) {
  if (bytes == bytes_ && !taken_ && reinterpret_cast<uintptr_t>(data_) % alignment == 0) {
    taken_ = true;
    return data_;
  }
  return tensorflow::cpu_allocator()->AllocateRaw(alignment, bytes);
}

void ResultAllocator::DeallocateRaw(void* data) {
  if (data != data_) tensorflow::cpu_allocator()->DeallocateRaw(data);
}

KernelDevice::KernelDevice(const KernelThreads* threads, ResultAllocator* result)
    : DeviceBase(tensorflow::Env::Default()), threads_(threads), result_(result) {}

tensorflow::Allocator* KernelDevice::GetAllocator(AllocatorAttributes attributes) {
  if (result_ != nullptr && attributes.value == ResultAttributes().value) return result_;
  return tensorflow::cpu_allocator();
}

const tensorflow::DeviceAttributes& KernelDevice::attributes() const {
  static const auto* const attributes = [this] {
    auto* made = new tensorflow::DeviceAttributes;
    made->set_name(name());
    made->set_device_type(device_type());
    return made;
  }();
  return *attributes;
}

const std::string& KernelDevice::name() const {
  static const auto* const name = new std::string("/job:localhost/replica:0/task:0/device:CPU:0");
  return *name;
}

const tensorflow::DeviceNameUtils::ParsedName& KernelDevice::parsed_name() const {
  static const auto* const parsed = [this] {
    auto* made = new tensorflow::DeviceNameUtils::ParsedName;
    tensorflow::DeviceNameUtils::ParseFullName(name(), made);
    return made;
  }();
  return *parsed;
}

const std::string& KernelDevice::device_type() const {
  static const auto* const type = new std::string(tensorflow::DEVICE_CPU);
  return *type;
}

CpuKernels& CpuKernels::OfProcess() {
  static auto* const kernels = new CpuKernels(*Process::Get().kernel_threads);
  return *kernels;
}

absl::StatusOr<OpKernel*> CpuKernels::Get(const tensorflow::NodeDef& node) {
  std::string key;
  tensorflow::SerializeToStringDeterministic(node, &key);
  absl::MutexLock lock(&mutex_);
  std::unique_ptr<OpKernel>& kernel = kernels_[key];
  if (kernel == nullptr) {
    absl::Status status;
    kernel = tensorflow::CreateOpKernel(tensorflow::DeviceType(tensorflow::DEVICE_CPU), &device_,
                                        tensorflow::cpu_allocator(), node, TF_GRAPH_DEF_VERSION,
                                        &status);
    TF_RETURN_IF_ERROR(status);
  }
  return kernel.get();
}

CpuKernelRun::CpuKernelRun(OpKernel* kernel, const KernelThreads& threads,
                           absl::Span<tensorflow::Tensor> inputs, ResultAllocator* result)
    : device_(&threads, result),
      input_attributes_(inputs.size()),
      output_attributes_(kernel->num_outputs()) {
  inputs_.reserve(inputs.size());
  for (tensorflow::Tensor& input : inputs) inputs_.emplace_back(&input);
  output_attributes_[0] = ResultAttributes();
  params_.device = &device_;
  params_.op_kernel = kernel;
  params_.inputs = inputs_;
  params_.input_alloc_attrs = input_attributes_;
  params_.output_attr_array = output_attributes_.data();
  context_.emplace(&params_);
  try {
    kernel->Compute(&*context_);
  } catch (const std::exception& error) {
    // oneDNN throws, for example if the processor lacks instructions for the type.
    context_->SetStatus(
        absl::InternalError(absl::StrCat(kernel->type_string(), " failed: ", error.what())));
  }
}

}  // namespace tf_tpu_ext
