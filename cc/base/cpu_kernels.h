// Runs TensorFlow's own CPU kernels, outside of any graph.
#ifndef TF_TPU_EXT_CC_BASE_CPU_KERNELS_H_
#define TF_TPU_EXT_CC_BASE_CPU_KERNELS_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "cc/base/kernel_threads.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/device_attributes.pb.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/util/device_name_utils.h"

namespace tf_tpu_ext {

// Hands out the given memory once, for a kernel's first output.
class ResultAllocator : public tensorflow::Allocator {
 public:
  ResultAllocator(void* data, size_t bytes) : data_(data), bytes_(bytes) {}

  std::string Name() override { return "tpu_program_result"; }
  void* AllocateRaw(size_t alignment, size_t bytes) override;
  void DeallocateRaw(void* data) override;

 private:
  void* const data_;
  const size_t bytes_;
  bool taken_ = false;
};

// A kernel's view of the machine.
class KernelDevice : public tensorflow::DeviceBase {
 public:
  // `result` allocates the first output; null if that is allocated like everything else.
  KernelDevice(const KernelThreads* threads, ResultAllocator* result);

  tensorflow::Allocator* GetAllocator(tensorflow::AllocatorAttributes attributes) override;
  const CpuWorkerThreads* tensorflow_cpu_worker_threads() const override {
    return &threads_->workers;
  }
  bool has_eigen_cpu_device() const override { return true; }
  const Eigen::ThreadPoolDevice* eigen_cpu_device() override { return threads_->device; }
  const tensorflow::DeviceAttributes& attributes() const override;
  const std::string& name() const override;
  const tensorflow::DeviceNameUtils::ParsedName& parsed_name() const override;
  const std::string& device_type() const override;

 private:
  const KernelThreads* const threads_;
  ResultAllocator* const result_;
};

// Kernels by node, kept for the life of the process. Equal nodes share a kernel, which may compute
// for several callers at once. Thread-safe.
class CpuKernels {
 public:
  static CpuKernels& OfProcess();

  explicit CpuKernels(const KernelThreadPools& threads) : device_(&threads.OfCaller(), nullptr) {}

  absl::StatusOr<tensorflow::OpKernel*> Get(const tensorflow::NodeDef& node);

 private:
  // Kernels may ask it for its threads when they are created.
  KernelDevice device_;
  // Held while a kernel is created, which does not take long, so that equal nodes get the same one.
  absl::Mutex mutex_;
  absl::flat_hash_map<std::string, std::unique_ptr<tensorflow::OpKernel>> kernels_
      ABSL_GUARDED_BY(mutex_);
};

// Runs a kernel to completion on the calling thread. Its outputs are in the context. Everything
// that the kernel may change is created for each run, so that one kernel can serve several threads.
class CpuKernelRun {
 public:
  // The first output is allocated in the memory of `result`, unless that is null.
  CpuKernelRun(tensorflow::OpKernel* kernel, const KernelThreads& threads,
               absl::Span<tensorflow::Tensor> inputs, ResultAllocator* result);

  absl::Status status() const { return context_->status(); }
  // Null if the kernel did not set it.
  const tensorflow::Tensor* output(int i) { return context_->mutable_output(i); }

 private:
  KernelDevice device_;
  std::vector<tensorflow::TensorValue> inputs_;
  const std::vector<tensorflow::AllocatorAttributes> input_attributes_;
  std::vector<tensorflow::AllocatorAttributes> output_attributes_;
  tensorflow::OpKernelContext::Params params_;
  std::optional<tensorflow::OpKernelContext> context_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_CPU_KERNELS_H_
