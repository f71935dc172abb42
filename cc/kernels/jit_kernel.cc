#include "cc/kernels/jit_kernel.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/device/virtual_device.h"
#include "cc/kernels/compile_and_launch.h"
#include "cc/kernels/jit_with_host.h"
#include "cc/ops/reachable_nodes.h"
#include "cc/program/traced_options.h"
#include "tensorflow/compiler/jit/compilability_check_util.h"
#include "tensorflow/compiler/jit/xla_kernel_creator.h"
#include "tensorflow/compiler/tf2xla/xla_compiler.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/common_runtime/function.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/errors.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::FunctionLibraryRuntime;
using tensorflow::NameAttrList;
using tensorflow::NodeProperties;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

// Runs one function.
class JitLaunchOp : public CompileAndLaunchOp {
 public:
  JitLaunchOp(OpKernelConstruction* construction, NameAttrList function,
              const std::vector<int>& constants, std::string compile_options)
      : CompileAndLaunchOp(construction, function.name(), constants, std::move(compile_options)),
        function_(std::move(function)) {}

 private:
  absl::Status Lower(OpKernelContext* /*context*/, tensorflow::XlaCompiler* compiler,
                     const tensorflow::XlaCompiler::CompileOptions& options,
                     absl::Span<const tensorflow::XlaArgument> arguments,
                     tensorflow::XlaCompilationResult* result) override {
    return compiler->CompileFunction(options, function_, arguments, result);
  }

  const NameAttrList function_;
};

class JitKernelCreator : public tensorflow::XlaKernelCreator {
 public:
  absl::Status CreateKernel(FunctionLibraryRuntime* library,
                            const std::shared_ptr<const NodeProperties>& properties,
                            std::unique_ptr<OpKernel>* kernel) const override {
    tensorflow::Device* device = library->device();
    NameAttrList function;
    absl::Status status = NameAndAttrsFromFunctionCall(properties->node_def, &function);
    const bool on_core = device->device_type() == kTpuDeviceType;
    const bool with_host =
        !on_core && status.ok() &&
        HoldsOutsideCompilation(function.name(), *library->GetFunctionLibraryDefinition());
    // TensorFlow's creator makes all other kernels, and reports their errors.
    if (!on_core && !with_host) return XlaKernelCreator::CreateKernel(library, properties, kernel);
    TF_RETURN_IF_ERROR(status);
    // What must be a constant depends on XLA's kernels for the body's ops.
    tensorflow::XlaOpRegistry::RegisterCompilationKernels();
    const tensorflow::FunctionBody* body = nullptr;
    std::vector<int> constants, resources;
    TF_RETURN_IF_ERROR(
        GetBodyAndConstantsAndResources(library, function, &body, &constants, &resources));
    const tensorflow::MemoryTypeVector inputs = GetInputMemoryTypes(body, constants, resources);
    const tensorflow::MemoryTypeVector outputs = GetOutputMemoryTypes(body);
    auto function_properties = std::make_shared<NodeProperties>(
        &body->record->fdef().signature(), properties->node_def, body->arg_types, body->ret_types);
    OpKernelConstruction construction(tensorflow::DeviceType(device->device_type()), device,
                                      device->GetAllocator(tensorflow::AllocatorAttributes()),
                                      library, device->resource_manager(), function_properties,
                                      inputs, outputs, library->graph_def_version(), &status);
    if (with_host) {
      *kernel = MakeJitWithHostKernel(&construction, function);
    } else {
      *kernel = std::make_unique<JitLaunchOp>(&construction, std::move(function), constants,
                                              CompileOptionsOf(body->record->fdef()));
    }
    return status;
  }
};

}  // namespace

void RegisterJitKernels() {
  // TensorFlow keeps the creator until the process ends.
  static auto* const creator = new JitKernelCreator;
  tensorflow::RegisterDefaultCustomKernelCreator(creator);
}

}  // namespace tf_tpu_ext
