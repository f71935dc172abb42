#include "cc/runtime/kernel_call.h"

#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "cc/base/custom_call.h"
#include "cc/base/kernel_threads.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/device_attributes.pb.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/lib/strings/proto_serialization.h"
#include "tensorflow/core/public/version.h"
#include "tensorflow/core/util/device_name_utils.h"
#include "xla/ffi/api/c_api.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::AllocatorAttributes;
using tensorflow::NodeDef;
using tensorflow::OpKernel;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// The result of a call lies in memory of the program: the kernel's output is to be made there.
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

// Marks the kernel's first output to the device that allocates it. The upper 8 bits are the
// device's.
AllocatorAttributes ResultAttributes() {
  AllocatorAttributes attributes;
  attributes.value = 1u << 24;
  return attributes;
}

// What a kernel knows of the machine.
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

// Kernels by the texts of their nodes, kept for the life of the process. A kernel may compute for
// several callers at once.
class Kernels {
 public:
  absl::StatusOr<OpKernel*> Get(const std::string& text) {
    {
      absl::ReaderMutexLock lock(&mutex_);
      if (auto found = kernels_.find(text); found != kernels_.end()) return found->second.get();
    }
    absl::StatusOr<NodeDef> node = DecodeKernelNode(text);
    if (!node.ok()) return node.status();
    static auto* const device = new KernelDevice(&KernelThreads::For(0), nullptr);
    absl::Status status;
    std::unique_ptr<OpKernel> kernel = tensorflow::CreateOpKernel(
        tensorflow::DeviceType(tensorflow::DEVICE_CPU), device, tensorflow::cpu_allocator(), *node,
        TF_GRAPH_DEF_VERSION, &status);
    if (!status.ok()) return status;
    absl::MutexLock lock(&mutex_);
    return kernels_.emplace(text, std::move(kernel)).first->second.get();
  }

  static Kernels& OfProcess() {
    static auto* const kernels = new Kernels;
    return *kernels;
  }

 private:
  absl::Mutex mutex_;
  absl::flat_hash_map<std::string, std::unique_ptr<OpKernel>> kernels_ ABSL_GUARDED_BY(mutex_);
};

// Runs a kernel; its outputs are the context's.
class Computation {
 public:
  // The first output is made in the memory of `result`, unless it is null.
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
  // Null if the kernel left it out.
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

std::vector<Tensor> ReadOperands(const XLA_FFI_Args& args) {
  std::vector<Tensor> tensors;
  tensors.reserve(args.size + 1);
  for (int64_t i = 0; i < args.size; ++i) {
    const auto& operand = *static_cast<const XLA_FFI_Buffer*>(args.args[i]);
    if (IsAlignedForKernels(operand.data)) {
      tensors.push_back(Borrow(operand));
    } else {
      Tensor copy(ToTensorFlowType(operand.dtype), ShapeOf(operand));
      if (copy.TotalBytes() > 0) std::memcpy(copy.data(), operand.data, copy.TotalBytes());
      tensors.push_back(std::move(copy));
    }
  }
  return tensors;
}

// Adds what the kernel that runs first has to say to the other.
absl::Status ComputeBefore(const std::string& node, const KernelThreads& threads,
                           std::vector<Tensor>* tensors) {
  absl::StatusOr<OpKernel*> kernel = Kernels::OfProcess().Get(node);
  if (!kernel.ok()) return kernel.status();
  if (tensors->empty() || (*kernel)->num_inputs() != 1) return WrongNumberOfInputs(**kernel, 1);
  Computation computation(*kernel, threads, absl::MakeSpan(*tensors).first(1), nullptr);
  if (!computation.status().ok()) return computation.status();
  const Tensor* last = computation.output((*kernel)->num_outputs() - 1);
  if (last == nullptr) {
    return absl::InternalError(
        absl::StrCat("Kernel ", (*kernel)->type_string(), " left out its last output."));
  }
  tensors->push_back(*last);
  return absl::OkStatus();
}

absl::Status Compute(const XLA_FFI_CallFrame& frame) {
  absl::StatusOr<OpKernel*> kernel =
      Kernels::OfProcess().Get(StringAttribute(frame.attrs, kKernelNode));
  if (!kernel.ok()) return kernel.status();
  const KernelThreads& threads = KernelThreads::For(IntegerAttribute(frame.attrs, kKernelWork));
  std::vector<Tensor> tensors = ReadOperands(frame.args);
  if (const std::string before = StringAttribute(frame.attrs, kKernelBefore); !before.empty()) {
    if (absl::Status status = ComputeBefore(before, threads, &tensors); !status.ok()) return status;
  }
  if (static_cast<int>(tensors.size()) != (*kernel)->num_inputs()) {
    return WrongNumberOfInputs(**kernel, tensors.size());
  }
  const auto& returned = *static_cast<const XLA_FFI_Buffer*>(frame.rets.rets[0]);
  const tensorflow::DataType type = ToTensorFlowType(returned.dtype);
  const tensorflow::TensorShape shape = ShapeOf(returned);
  const size_t bytes = shape.num_elements() * tensorflow::DataTypeSize(type);
  ResultAllocator result(returned.data, bytes);
  Computation computation(*kernel, threads, absl::MakeSpan(tensors), &result);
  if (!computation.status().ok()) return computation.status();
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
  if (output->data() != returned.data) std::memcpy(returned.data, output->data(), bytes);
  return absl::OkStatus();
}

XLA_FFI_Error* Handler(XLA_FFI_CallFrame* frame) {
  if (AnswersMetadata(frame)) return nullptr;
  const absl::Status status = Compute(*frame);
  if (status.ok()) return nullptr;
  return MakeError(
      frame->api,
      absl::Status(status.code(), absl::StrCat("Op ", StringAttribute(frame->attrs, kKernelOp),
                                               ": ", status.message())));
}

[[maybe_unused]] const bool kRegistered = RegisterCustomCall(kKernelTarget, Handler);

}  // namespace

std::string EncodeKernelNode(const NodeDef& node) {
  std::string serialized;
  tensorflow::SerializeToStringDeterministic(node, &serialized);
  return absl::WebSafeBase64Escape(serialized);
}

absl::StatusOr<NodeDef> DecodeKernelNode(const std::string& text) {
  std::string serialized;
  NodeDef node;
  if (!absl::WebSafeBase64Unescape(text, &serialized) || !node.ParseFromString(serialized)) {
    return absl::InternalError(absl::StrCat("Expected a kernel's node; got '", text, "'."));
  }
  return node;
}

}  // namespace tf_tpu_ext
