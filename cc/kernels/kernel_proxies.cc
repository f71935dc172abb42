#include "cc/kernels/kernel_proxies.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/const_init.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/node_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "cc/compiler/lower/lower_module.h"
#include "cc/device/virtual_device.h"
#include "cc/kernels/compile_on_demand.h"
#include "cc/kernels/cpu_first.h"
#include "cc/kernels/ordered_update.h"
#include "cc/kernels/variable_types.h"
#include "cc/ops/host_update_ops.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/kernel_def.pb.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/errors.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::KernelDef;
using tensorflow::NodeProperties;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

// Ops that handle values, state and calls rather than compute: every device has them.
constexpr const char* kInfrastructureOps[] = {
    "_ArrayToList",
    "_DeviceArg",
    "_DeviceRetval",
    "_ListToArray",
    "_ReadVariablesOp",
    "_VarHandlesOp",
    "Assert",
    "AssignAddVariableOp",
    "AssignSubVariableOp",
    "AssignVariableOp",
    "Bitcast",
    "Const",
    "ControlTrigger",
    "DestroyResourceOp",
    "Enter",
    "Exit",
    "Identity",
    "IdentityN",
    "If",
    "LoopCond",
    "Merge",
    "NextIteration",
    "NoOp",
    "PartitionedCall",
    "Placeholder",
    "ReadVariableOp",
    "StatefulPartitionedCall",
    "StatelessIf",
    "StatelessWhile",
    "Switch",
    "SymbolicGradient",
    "VarHandleOp",
    "VarIsInitializedOp",
    "VariableShape",
    "While",
};

// Ops of device-side input pipelines, with the arguments that stay in host memory, because datasets
// and handles have no representation on a device.
struct HostArguments {
  const char* op;
  std::vector<const char*> arguments;
};

const std::vector<HostArguments>& InputPipelineOps() {
  static const auto* const ops = new std::vector<HostArguments>{
      {"AnonymousIterator", {}},
      {"AnonymousIteratorV2", {}},
      {"AnonymousIteratorV3", {}},
      {"DeleteIterator", {}},
      {"FIFOQueueV2", {"handle"}},
      {"FinalizeDataset", {"input_dataset", "handle"}},
      {"GeneratorDataset", {"handle"}},
      {"IteratorFromStringHandleV2", {"string_handle"}},
      {"IteratorGetNext", {}},
      {"IteratorGetNextAsOptional", {}},
      {"IteratorGetNextSync", {}},
      {"IteratorToStringHandle", {"string_handle"}},
      {"IteratorV2", {}},
      {"MakeIterator", {"dataset"}},
      {"OptionalFromValue", {}},
      {"OptionalGetValue", {}},
      {"OptionalHasValue", {"has_value"}},
      {"OptionalNone", {}},
      {"OptionsDataset", {"input_dataset", "handle"}},
      {"PrefetchDataset", {"buffer_size", "input_dataset", "handle"}},
      {"RemoteCall", {"target"}},
  };
  return *ops;
}

// Runs the CPU's kernel with the memory types of the TPU's registration: the CPU's own kernel
// claims that all its memory is on the device, but handles and datasets must stay on the host.
class HostMemoryProxy : public OpKernel {
 public:
  HostMemoryProxy(OpKernelConstruction* construction, std::unique_ptr<OpKernel> kernel)
      : OpKernel(construction), kernel_(std::move(kernel)) {}

  void Compute(OpKernelContext* context) override { kernel_->Compute(context); }
  tensorflow::AsyncOpKernel* AsAsync() override { return kernel_->AsAsync(); }
  bool IsExpensive() override { return kernel_->IsExpensive(); }
  const tensorflow::Tensor* const_tensor() const override { return kernel_->const_tensor(); }

 private:
  const std::unique_ptr<OpKernel> kernel_;
};

// Runs the CPU's kernel for an update, if the variables have the op's type.
class HostUpdateOp : public OpKernel {
 public:
  HostUpdateOp(OpKernelConstruction* construction, std::unique_ptr<OpKernel> kernel)
      : OpKernel(construction), kernel_(std::move(kernel)), type_(UpdatedType(*construction)) {}

  void Compute(OpKernelContext* context) override {
    OP_REQUIRES_OK(context, CheckVariableTypes(context, type_));
    kernel_->Compute(context);
  }
  bool IsExpensive() override { return kernel_->IsExpensive(); }

 private:
  const std::unique_ptr<OpKernel> kernel_;
  const tensorflow::DataType type_;
};

bool HasHostMemory(const OpKernelConstruction& construction) {
  const auto is_host = [](tensorflow::MemoryType type) { return type == tensorflow::HOST_MEMORY; };
  const auto& inputs = construction.input_memory_types();
  const auto& outputs = construction.output_memory_types();
  return std::any_of(inputs.begin(), inputs.end(), is_host) ||
         std::any_of(outputs.begin(), outputs.end(), is_host);
}

constexpr char kUseLocking[] = "use_locking";

// The op as the kernel sees it: a scatter's kernel reads an attribute that its op lacks.
const tensorflow::OpDef* WithLockingAttr(const tensorflow::OpDef& op) {
  const auto is_locking = [](const auto& attr) { return attr.name() == kUseLocking; };
  if (std::any_of(op.attr().begin(), op.attr().end(), is_locking)) return &op;
  // Kernels are made on any thread, and refer to their op for as long as they live: entries are
  // never moved or removed.
  static absl::Mutex mutex(absl::kConstInit);
  static auto* const ops = new absl::node_hash_map<std::string, tensorflow::OpDef>;
  absl::MutexLock lock(&mutex);
  const auto [known, fresh] = ops->emplace(op.name(), op);
  if (fresh) {
    auto* attr = known->second.add_attr();
    attr->set_name(kUseLocking);
    attr->set_type("bool");
  }
  return &known->second;
}

// Makes the update hold its variable exclusively: by default, TensorFlow's scatters and optimizers
// share it with others.
std::shared_ptr<const NodeProperties> Locking(const NodeProperties& properties) {
  auto locking = std::make_shared<NodeProperties>(properties);
  locking->op_def = WithLockingAttr(*properties.op_def);
  (*locking->node_def.mutable_attr())[kUseLocking].set_b(true);
  return locking;
}

bool UpdatesVariableOfCore(const OpKernelConstruction& construction) {
  return construction.device_type() == tensorflow::DeviceType(kTpuDeviceType) &&
         UpdatesVariable(construction.def().op());
}

// Makes the CPU's kernel for the same node, or for the op that it overrides. What that kernel does
// not accept is compiled.
class CpuKernelFactory : public tensorflow::kernel_factory::OpKernelFactory {
 public:
  OpKernel* Create(OpKernelConstruction* construction) override {
    const bool on_core = construction->device_type() == tensorflow::DeviceType(kTpuDeviceType);
    if (on_core && MustCompileOnDemand(construction->def())) {
      return MakeCompileOnDemandKernel(construction);
    }
    // The library also knows functions, which nodes may name as their op.
    const tensorflow::OpRegistryInterface* registry = tensorflow::OpRegistry::Global();
    tensorflow::FunctionLibraryRuntime* library = construction->function_library();
    if (library != nullptr && library->GetFunctionLibraryDefinition() != nullptr) {
      registry = library->GetFunctionLibraryDefinition();
    }
    absl::StatusOr<std::unique_ptr<OpKernel>> kernel =
        CreateCpuKernel(*registry, library, construction);
    if (!kernel.ok()) {
      // The CPU may refuse attributes that a TPU accepts.
      if (on_core && CanCompileOnDemand(construction->def())) {
        return MakeCompileOnDemandKernel(construction);
      }
      construction->SetStatus(kernel.status());
      return nullptr;
    }
    if ((*kernel)->AsAsync() == nullptr) {
      std::unique_ptr<OpKernel> compiled;
      if (on_core && CpuRefusesInputs(construction->def()) &&
          CanCompileOnDemand(construction->def())) {
        compiled.reset(MakeCompileOnDemandKernel(construction));
        if (compiled == nullptr) return nullptr;
      }
      if (UpdatesVariableOfCore(*construction)) {
        return MakeOrderedUpdate(construction, *std::move(kernel), std::move(compiled));
      }
      if (compiled != nullptr) {
        return MakeCpuFirst(construction, *std::move(kernel), std::move(compiled));
      }
    }
    if (!OriginalOfHostUpdate(construction->def().op()).empty()) {
      return new HostUpdateOp(construction, *std::move(kernel));
    }
    if (HasHostMemory(*construction)) return new HostMemoryProxy(construction, *std::move(kernel));
    return kernel->release();
  }

 private:
  static absl::StatusOr<std::unique_ptr<OpKernel>> CreateCpuKernel(
      const tensorflow::OpRegistryInterface& registry, tensorflow::FunctionLibraryRuntime* library,
      OpKernelConstruction* construction) {
    tensorflow::NodeDef definition = construction->def();
    const std::string original = OriginalOfHostUpdate(definition.op());
    if (!original.empty()) definition.set_op(original);
    std::shared_ptr<const NodeProperties> properties;
    TF_RETURN_IF_ERROR(NodeProperties::CreateFromNodeDef(definition, &registry, &properties));
    if (!original.empty() || UpdatesVariableOfCore(*construction)) {
      properties = Locking(*properties);
    }
    tensorflow::DeviceBase* device = construction->device();
    OpKernel* kernel = nullptr;
    TF_RETURN_IF_ERROR(tensorflow::CreateOpKernel(
        tensorflow::DeviceType(tensorflow::DEVICE_CPU), device,
        device->GetAllocator(tensorflow::AllocatorAttributes()), library,
        construction->resource_manager(), properties, construction->graph_def_version(), &kernel));
    return std::unique_ptr<OpKernel>(kernel);
  }
};

class CompileOnDemandFactory : public tensorflow::kernel_factory::OpKernelFactory {
 public:
  OpKernel* Create(OpKernelConstruction* construction) override {
    return MakeCompileOnDemandKernel(construction);
  }
};

template <typename Factory = CpuKernelFactory>
void Register(std::unique_ptr<KernelDef> kernel, const char* factory_name = "CpuKernelFactory") {
  // The registry takes ownership of the KernelDef.
  tensorflow::kernel_factory::OpKernelRegistrar(kernel.release(), factory_name,
                                                std::make_unique<Factory>());
}

void RegisterProxy(const KernelDef& cpu_kernel, const char* device_type,
                   const HostArguments* host_arguments) {
  auto kernel = std::make_unique<KernelDef>(cpu_kernel);
  kernel->set_device_type(device_type);
  if (host_arguments != nullptr) {
    kernel->clear_host_memory_arg();
    for (const char* argument : host_arguments->arguments) kernel->add_host_memory_arg(argument);
  }
  Register(std::move(kernel));
}

// What the compiler accepts but the CPU has no kernel for, for example because of a type, is
// compiled. The lower priority keeps the CPU's kernels the first choice.
void RegisterCompileOnDemand(const KernelDef& compiled) {
  auto kernel = std::make_unique<KernelDef>(compiled);
  kernel->set_device_type(kTpuDeviceType);
  kernel->set_priority(-1);
  Register<CompileOnDemandFactory>(std::move(kernel), "CompileOnDemandFactory");
}

// A function's arguments and results live on the core, except handles and strings. (The kernels
// that every device has would keep int32 on the host.)
void RegisterFunctionBoundary(const char* op, const char* host_argument) {
  for (const bool on_host : {false, true}) {
    auto kernel = std::make_unique<KernelDef>();
    kernel->set_op(op);
    kernel->set_device_type(kTpuDeviceType);
    auto* types = kernel->add_constraint();
    types->set_name("T");
    for (int type = tensorflow::DT_FLOAT; type < tensorflow::kDataTypeRefOffset; ++type) {
      if (!tensorflow::DataType_IsValid(type)) continue;
      const bool is_of_host = type == tensorflow::DT_RESOURCE || type == tensorflow::DT_STRING;
      if (is_of_host != on_host) continue;
      types->mutable_allowed_values()->mutable_list()->add_type(
          static_cast<tensorflow::DataType>(type));
    }
    if (on_host) kernel->add_host_memory_arg(host_argument);
    Register(std::move(kernel));
  }
}

using OpNames = absl::flat_hash_set<std::string>;

// For each op of input pipelines, what stays in host memory.
using HostArgumentsByOp = absl::flat_hash_map<std::string, const HostArguments*>;

OpNames InfrastructureOps() {
  return OpNames(std::begin(kInfrastructureOps), std::end(kInfrastructureOps));
}

// Ops that get a kernel on the TPU if the CPU has one: those that XLA can compile, so that eager
// code on a core runs what a TPU would.
OpNames OpsOfTpu(const HostArgumentsByOp& input_pipeline) {
  OpNames ops = InfrastructureOps();
  for (const std::string& op : tensorflow::XlaOpRegistry::GetAllRegisteredOps()) ops.insert(op);
  for (const auto& [op, arguments] : input_pipeline) ops.insert(op);
  // TensorFlow registers the transfers for every device; _Arg and _Retval get kernels of their own.
  for (const char* op : {"_Arg", "_Retval", "_HostRecv", "_HostSend", "_Recv", "_Send"}) {
    ops.erase(op);
  }
  return ops;
}

OpNames OpsWithKernels(const tensorflow::KernelList& kernels, const char* device_type) {
  OpNames ops;
  for (const KernelDef& kernel : kernels.kernel()) {
    if (kernel.device_type() == device_type) ops.insert(kernel.op());
  }
  return ops;
}

void RegisterHostUpdateKernel(const KernelDef& cpu_kernel) {
  auto override = std::make_unique<KernelDef>(cpu_kernel);
  override->set_op(HostUpdateOverride(cpu_kernel.op()));
  Register(std::move(override));
}

}  // namespace

void RegisterKernelProxies() {
  HostArgumentsByOp input_pipeline;
  for (const HostArguments& op : InputPipelineOps()) input_pipeline[op.op] = &op;
  const OpNames of_tpu = OpsOfTpu(input_pipeline);
  const OpNames of_tpu_system = InfrastructureOps();
  const tensorflow::KernelList kernels = tensorflow::GetAllRegisteredKernels();
  // A second kernel for the same op and constraints would end the process, so leave out what
  // exists.
  const OpNames on_tpu = OpsWithKernels(kernels, kTpuDeviceType);
  const OpNames on_tpu_system = OpsWithKernels(kernels, kTpuSystemDeviceType);
  for (const KernelDef& kernel : kernels.kernel()) {
    if (kernel.device_type() != tensorflow::DEVICE_CPU) continue;
    if (of_tpu.contains(kernel.op()) && !on_tpu.contains(kernel.op())) {
      const auto host_arguments = input_pipeline.find(kernel.op());
      RegisterProxy(kernel, kTpuDeviceType,
                    host_arguments == input_pipeline.end() ? nullptr : host_arguments->second);
    }
    if (of_tpu_system.contains(kernel.op()) && !on_tpu_system.contains(kernel.op())) {
      RegisterProxy(kernel, kTpuSystemDeviceType, nullptr);
    }
    if (IsHostUpdate(kernel.op())) RegisterHostUpdateKernel(kernel);
  }
  tensorflow::XlaOpRegistry::RegisterCompilationKernels();
  for (const KernelDef* kernel : tensorflow::XlaOpRegistry::DeviceKernels(
           kCompilationDevice, /*include_compilation_only_kernels=*/false)) {
    if (of_tpu.contains(kernel->op()) && !on_tpu.contains(kernel->op()) &&
        !of_tpu_system.contains(kernel->op())) {
      RegisterCompileOnDemand(*kernel);
    }
  }
  if (!on_tpu.contains("_Arg")) RegisterFunctionBoundary("_Arg", "output");
  if (!on_tpu.contains("_Retval")) RegisterFunctionBoundary("_Retval", "input");
}

}  // namespace tf_tpu_ext
