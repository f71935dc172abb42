// Lets a running program compute with TensorFlow's own CPU kernels.
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "cc/base/custom_call.h"
#include "cc/base/kernel_threads.h"
#include "cc/base/process.h"
#include "cc/program/kernel_call.h"
#include "cc/transfer/call_buffers.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/device_attributes.pb.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/lib/strings/proto_serialization.h"
#include "tensorflow/core/public/version.h"
#include "tensorflow/core/util/device_name_utils.h"
#include "xla/ffi/api/c_api.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::AllocatorAttributes;
using tensorflow::NodeDef;
using tensorflow::OpKernel;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// Allocates a call's result, the kernel's output, in the program's memory.
class ResultAllocator : public tensorflow::Allocator {
 public:
  ResultAllocator(void* data, size_t bytes) : data_(data), bytes_(bytes) {}

  std::string Name() override { return "tpu_program_result"; }

  void* AllocateRaw(size_t alignment, size_t bytes) override {
    if (bytes == bytes_ && !taken_ && reinterpret_cast<uintptr_t>(data_) % alignment == 0) {
      taken_ = true;
      return data_;
    }
    return tensorflow::cpu_allocator()->AllocateRaw(alignment, bytes);
  }

  void DeallocateRaw(void* data) override {
    if (data != data_) tensorflow::cpu_allocator()->DeallocateRaw(data);
  }

 private:
  void* const data_;
  const size_t bytes_;
  bool taken_ = false;
};

// Attributes that identify the kernel's first output to the device that allocates it. The upper 8
// bits are reserved for the device.
AllocatorAttributes ResultAttributes() {
  AllocatorAttributes attributes;
  attributes.value = 1u << 24;
  return attributes;
}

// The kernel's view of the machine.
class KernelDevice : public tensorflow::DeviceBase {
 public:
  explicit KernelDevice(const KernelThreads* threads, ResultAllocator* result)
      : DeviceBase(tensorflow::Env::Default()), threads_(threads), result_(result) {}

  tensorflow::Allocator* GetAllocator(AllocatorAttributes attributes) override {
    if (result_ != nullptr && attributes.value == ResultAttributes().value) return result_;
    return tensorflow::cpu_allocator();
  }
  const CpuWorkerThreads* tensorflow_cpu_worker_threads() const override {
    return &threads_->workers;
  }
  bool has_eigen_cpu_device() const override { return true; }
  const Eigen::ThreadPoolDevice* eigen_cpu_device() override { return threads_->device; }
  const tensorflow::DeviceAttributes& attributes() const override {
    static const auto* const attributes = [] {
      auto* made = new tensorflow::DeviceAttributes;
      made->set_name(Name());
      made->set_device_type(tensorflow::DEVICE_CPU);
      return made;
    }();
    return *attributes;
  }
  const std::string& name() const override { return Name(); }
  const tensorflow::DeviceNameUtils::ParsedName& parsed_name() const override {
    static const auto* const parsed = [] {
      auto* made = new tensorflow::DeviceNameUtils::ParsedName;
      tensorflow::DeviceNameUtils::ParseFullName(Name(), made);
      return made;
    }();
    return *parsed;
  }
  const std::string& device_type() const override {
    static const auto* const type = new std::string(tensorflow::DEVICE_CPU);
    return *type;
  }

 private:
  static const std::string& Name() {
    static const auto* const name = new std::string("/job:localhost/replica:0/task:0/device:CPU:0");
    return *name;
  }

  const KernelThreads* const threads_;
  ResultAllocator* const result_;
};

// Kernels by node, kept for the life of the process. Equal nodes share a kernel, which may compute
// for several callers at once.
class Kernels {
 public:
  explicit Kernels(const KernelThreadPools& threads) : device_(&threads.OfCaller(), nullptr) {}

  absl::StatusOr<OpKernel*> Get(const NodeDef& node) {
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

  static Kernels& OfProcess() {
    static auto* const kernels = new Kernels(*Process::Get().kernel_threads);
    return *kernels;
  }

 private:
  // Kernels may ask it for its threads when they are created.
  KernelDevice device_;
  // Held while a kernel is created, which does not take long, so that equal nodes get the same one.
  absl::Mutex mutex_;
  absl::flat_hash_map<std::string, std::unique_ptr<OpKernel>> kernels_ ABSL_GUARDED_BY(mutex_);
};

// Runs a kernel to completion on the calling thread. Its outputs are in the context. Everything
// that the kernel may change is created for each run, so that one kernel can serve several threads.
class Computation {
 public:
  // The first output is allocated in the memory of `result`, unless that is null.
  Computation(OpKernel* kernel, const KernelThreads& threads, absl::Span<Tensor> tensors,
              ResultAllocator* result)
      : device_(&threads, result),
        input_attributes_(tensors.size()),
        output_attributes_(kernel->num_outputs()) {
    inputs_.reserve(tensors.size());
    for (Tensor& tensor : tensors) inputs_.emplace_back(&tensor);
    output_attributes_[0] = ResultAttributes();
    params_.device = &device_;
    params_.op_kernel = kernel;
    params_.inputs = inputs_;
    params_.input_alloc_attrs = input_attributes_;
    params_.output_attr_array = output_attributes_.data();
    context_.emplace(&params_);
    kernel->Compute(&*context_);
  }

  absl::Status status() const { return context_->status(); }
  // Null if the kernel did not set it.
  const Tensor* output(int i) { return context_->mutable_output(i); }

 private:
  KernelDevice device_;
  std::vector<tensorflow::TensorValue> inputs_;
  const std::vector<AllocatorAttributes> input_attributes_;
  std::vector<AllocatorAttributes> output_attributes_;
  OpKernelContext::Params params_;
  std::optional<OpKernelContext> context_;
};

absl::Status WrongNumberOfInputs(const OpKernel& kernel, size_t operands) {
  return absl::InternalError(absl::StrCat("Kernel ", kernel.type_string(), " takes ",
                                          kernel.num_inputs(), " inputs; the program has ",
                                          operands, " operands for it."));
}

// Created once, together with the executable. All runs' threads may call Execute concurrently,
// which does not modify it.
class KernelCustomCall : public CustomCall {
 public:
  // `before` is null if no other kernel runs first.
  KernelCustomCall(const KernelCall& call, const KernelThreadPools* threads, OpKernel* kernel,
                   OpKernel* before)
      : op_(absl::StrCat(call.op, " ", call.name)),
        work_(call.work),
        threads_(*threads),
        kernel_(kernel),
        before_(before) {}

  absl::Status Execute(XLA_FFI_CallFrame* frame) const override {
    absl::Status status = Compute(*frame);
    if (status.ok()) return status;
    return absl::Status(status.code(), absl::StrCat("Op ", op_, ": ", status.message()));
  }

 private:
  absl::Status Compute(const XLA_FFI_CallFrame& frame) const {
    const KernelThreads& threads = threads_.For(work_);
    TF_ASSIGN_OR_RETURN(std::vector<Tensor> tensors,
                        ReadOperands(frame.args, /*dynamic=*/{}, OperandMemory::kBorrowed));
    if (before_ != nullptr) TF_RETURN_IF_ERROR(ComputeBefore(threads, &tensors));
    if (static_cast<int>(tensors.size()) != kernel_->num_inputs()) {
      return WrongNumberOfInputs(*kernel_, tensors.size());
    }
    const auto& returned = *static_cast<const XLA_FFI_Buffer*>(frame.rets.rets[0]);
    const tensorflow::DataType type = ToTensorFlowType(returned.dtype);
    const tensorflow::TensorShape shape = ShapeOf(returned);
    const size_t bytes = shape.num_elements() * tensorflow::DataTypeSize(type);
    ResultAllocator result(returned.data, bytes);
    Computation computation(kernel_, threads, absl::MakeSpan(tensors), &result);
    TF_RETURN_IF_ERROR(computation.status());
    const Tensor* output = computation.output(0);
    if (output == nullptr || output->dtype() != type || output->shape() != shape) {
      return absl::InternalError(absl::StrCat(
          "The kernel computed ",
          output == nullptr ? "nothing"
                            : absl::StrCat(tensorflow::DataTypeString(output->dtype()),
                                           output->shape().DebugString()),
          "; the program expects ", tensorflow::DataTypeString(type), shape.DebugString(),
          ". Switch TensorFlow's kernels off by tf_tpu_ext.configure(tensorflow_kernels=False)."));
    }
    // The allocator serves the first request for this size. A kernel may first ask for something
    // else, forward an input, or create its output in another way.
    if (output->data() != returned.data) std::memcpy(returned.data, output->data(), bytes);
    return absl::OkStatus();
  }

  // Appends the last output of the kernel that runs first to the inputs of the other.
  absl::Status ComputeBefore(const KernelThreads& threads, std::vector<Tensor>* tensors) const {
    if (tensors->empty() || before_->num_inputs() != 1) return WrongNumberOfInputs(*before_, 1);
    Computation computation(before_, threads, absl::MakeSpan(*tensors).first(1), nullptr);
    TF_RETURN_IF_ERROR(computation.status());
    const Tensor* last = computation.output(before_->num_outputs() - 1);
    if (last == nullptr) {
      return absl::InternalError(
          absl::StrCat("Kernel ", before_->type_string(), " left out its last output."));
    }
    tensors->push_back(*last);
    return absl::OkStatus();
  }

  const std::string op_;
  const int64_t work_;
  const KernelThreadPools& threads_;
  OpKernel* const kernel_;
  OpKernel* const before_;
};

absl::StatusOr<std::unique_ptr<CustomCall>> MakeKernelCall(const CallAttributes& attributes) {
  TF_ASSIGN_OR_RETURN(const KernelCall call, DecodeKernelCall(attributes));
  TF_ASSIGN_OR_RETURN(OpKernel * kernel, Kernels::OfProcess().Get(call.node));
  OpKernel* before = nullptr;
  if (call.before.has_value()) {
    TF_ASSIGN_OR_RETURN(before, Kernels::OfProcess().Get(*call.before));
  }
  return std::make_unique<KernelCustomCall>(call, Process::Get().kernel_threads, kernel, before);
}

[[maybe_unused]] const bool kKernelCallRegistered =
    RegisterCustomCall<MakeKernelCall>(kKernelTarget);

}  // namespace
}  // namespace tf_tpu_ext
