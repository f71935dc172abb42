// For tests: one custom call, made and executed as XLA does in a compiled program.
#ifndef TF_TPU_EXT_CC_BASE_CUSTOM_CALL_TESTER_H_
#define TF_TPU_EXT_CC_BASE_CUSTOM_CALL_TESTER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cc/base/core_context.h"
#include "tensorflow/compiler/tf2xla/shape_util.h"
#include "tensorflow/core/framework/tensor.h"
#include "xla/backends/cpu/runtime/buffer_allocations.h"
#include "xla/backends/cpu/runtime/custom_call_thunk.h"
#include "xla/backends/cpu/runtime/thunk.h"
#include "xla/executable_run_options.h"
#include "xla/ffi/execution_context.h"
#include "xla/service/buffer_assignment.h"
#include "xla/shape.h"
#include "xla/tsl/concurrency/async_value_ref.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {

class CustomCallTester {
 public:
  using Event = tsl::AsyncValueRef<xla::cpu::Thunk::ExecuteEvent>;

  // Makes the call for operands and results of these types and shapes. The tensors are also the
  // program's memory: each execution reads the operands and writes the results.
  static absl::StatusOr<std::unique_ptr<CustomCallTester>> Create(
      const std::string& target, const std::string& config,
      std::vector<tensorflow::Tensor> operands, std::vector<tensorflow::Tensor> results) {
    std::unique_ptr<CustomCallTester> tester(new CustomCallTester);
    xla::cpu::CustomCallThunk::OpBuffers buffers;
    for (const auto& operand : operands) {
      TF_RETURN_IF_ERROR(
          tester->AddBuffer(operand, &buffers.arguments_buffers, &buffers.arguments_shapes));
    }
    for (const auto& result : results) {
      TF_RETURN_IF_ERROR(
          tester->AddBuffer(result, &buffers.results_buffers, &buffers.results_shapes));
    }
    buffers.is_tuple_result = true;
    tester->operands_ = std::move(operands);
    tester->results_ = std::move(results);
    TF_ASSIGN_OR_RETURN(tester->thunk_,
                        xla::cpu::CustomCallThunk::Create(
                            xla::cpu::Thunk::Info(), target, std::move(buffers), config,
                            xla::CustomCallApiVersion::API_VERSION_TYPED_FFI));
    return tester;
  }

  // Starts an execution, as on a core of a TPU program unless `core` is null. The core and the
  // tester must outlive it.
  absl::StatusOr<Event> Start(CoreContext* core) {
    Execution& execution = executions_.emplace_back();
    if (core != nullptr) TF_RETURN_IF_ERROR(execution.context.Insert(core));
    execution.options.set_device_ordinal(0);
    execution.options.set_ffi_execution_context(&execution.context);
    TF_ASSIGN_OR_RETURN(const auto params,
                        xla::cpu::Thunk::CustomCallExecuteParams::Create(&execution.options));
    execution.call_params.emplace(params);
    std::vector<stream_executor::DeviceAddressBase> addresses;
    for (const auto* tensors : {&operands_, &results_}) {
      for (const tensorflow::Tensor& tensor : *tensors) {
        addresses.emplace_back(tensor.data(), tensor.TotalBytes());
      }
    }
    execution.buffers.emplace(addresses);
    execution.params.buffer_allocations = &*execution.buffers;
    execution.params.custom_call_params = &*execution.call_params;
    return thunk_->Execute(execution.params);
  }

  // Executes the call and waits for it.
  absl::Status Run(CoreContext* core) {
    TF_ASSIGN_OR_RETURN(Event event, Start(core));
    tsl::BlockUntilReady(event);
    return event.IsError() ? event.GetError() : absl::OkStatus();
  }

  tensorflow::Tensor& operand(int i) { return operands_[i]; }
  tensorflow::Tensor& result(int i) { return results_[i]; }

 private:
  // What XLA refers to until an execution has ended.
  struct Execution {
    xla::ExecutableRunOptions options;
    xla::ffi::ExecutionContext context;
    std::optional<xla::cpu::Thunk::CustomCallExecuteParams> call_params;
    std::optional<xla::cpu::BufferAllocations> buffers;
    xla::cpu::Thunk::ExecuteParams params;
  };

  CustomCallTester() = default;

  absl::Status AddBuffer(const tensorflow::Tensor& tensor,
                         std::vector<xla::BufferAllocation::Slice>* slices,
                         std::vector<xla::Shape>* shapes) {
    const auto bytes = static_cast<int64_t>(tensor.TotalBytes());
    const auto index = static_cast<int64_t>(allocations_.size());
    allocations_.emplace_back(index, bytes, /*color=*/0);
    slices->emplace_back(&allocations_.back(), /*offset=*/0, bytes);
    return tensorflow::TensorShapeToXLAShape(tensor.dtype(), tensor.shape(),
                                             &shapes->emplace_back());
  }

  std::deque<xla::BufferAllocation> allocations_;
  std::vector<tensorflow::Tensor> operands_;
  std::vector<tensorflow::Tensor> results_;
  std::unique_ptr<xla::cpu::CustomCallThunk> thunk_;
  std::deque<Execution> executions_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_CUSTOM_CALL_TESTER_H_
