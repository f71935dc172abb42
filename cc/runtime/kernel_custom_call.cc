// Lets a running program compute with TensorFlow's own CPU kernels.
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "cc/base/cpu_kernels.h"
#include "cc/base/custom_call.h"
#include "cc/base/kernel_threads.h"
#include "cc/base/process.h"
#include "cc/program/kernel_call.h"
#include "cc/transfer/call_buffers.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "xla/ffi/api/c_api.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::OpKernel;
using tensorflow::Tensor;

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
    CpuKernelRun run(kernel_, threads, absl::MakeSpan(tensors), &result);
    TF_RETURN_IF_ERROR(run.status());
    const Tensor* output = run.output(0);
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
    CpuKernelRun run(before_, threads, absl::MakeSpan(*tensors).first(1), nullptr);
    TF_RETURN_IF_ERROR(run.status());
    const Tensor* last = run.output(before_->num_outputs() - 1);
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
  TF_ASSIGN_OR_RETURN(OpKernel * kernel, CpuKernels::OfProcess().Get(call.node));
  OpKernel* before = nullptr;
  if (call.before.has_value()) {
    TF_ASSIGN_OR_RETURN(before, CpuKernels::OfProcess().Get(*call.before));
  }
  return std::make_unique<KernelCustomCall>(call, Process::Get().kernel_threads, kernel, before);
}

[[maybe_unused]] const bool kKernelCallRegistered =
    RegisterCustomCall<MakeKernelCall>(kKernelTarget);

}  // namespace
}  // namespace tf_tpu_ext
