// Kernels that configure the embedding engine. ConfigureTPUEmbedding does everything; the other ops
// are the parts into which TensorFlow splits it for a TPU with several hosts.
#include <string>

#include "absl/strings/str_cat.h"
#include "cc/base/process.h"
#include "cc/device/virtual_device.h"
#include "cc/embedding/current_embedding.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// A kernel with an attribute "config", a serialized TPUEmbeddingConfiguration.
class ConfigOp : public OpKernel {
 public:
  explicit ConfigOp(OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("config", &config_));
  }

 protected:
  std::string config_;
};

void SetString(OpKernelContext* context, const std::string& value) {
  Tensor* output = nullptr;
  OP_REQUIRES_OK(context, context->allocate_output(0, {}, &output));
  output->scalar<tensorflow::tstring>()() = value;
}

class ConfigureEmbeddingOp : public ConfigOp {
 public:
  using ConfigOp::ConfigOp;
  void Compute(OpKernelContext* context) override {
    OP_REQUIRES_OK(context, Process::Get().embedding->Configure(config_));
  }
};

class ConfigureHostOp : public ConfigOp {
 public:
  using ConfigOp::ConfigOp;
  void Compute(OpKernelContext* context) override {
    OP_REQUIRES_OK(context, Process::Get().embedding->Configure(config_));
    SetString(context, "");
  }
};

class PartitionerOp : public ConfigOp {
 public:
  using ConfigOp::ConfigOp;
  void Compute(OpKernelContext* context) override { SetString(context, config_); }
};

// The output is empty: there is no memory layout that other ops have to know.
class MemoryOp : public OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* context) override { SetString(context, ""); }
};

class NothingOp : public OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext*) override {}
};

class IsInitializedOp : public ConfigOp {
 public:
  using ConfigOp::ConfigOp;
  void Compute(OpKernelContext* context) override {
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &output));
    output->scalar<bool>()() = Process::Get().embedding->IsConfigured(config_);
  }
};

REGISTER_KERNEL_BUILDER(Name("ConfigureTPUEmbedding").Device(kTpuSystemDeviceType),
                        ConfigureEmbeddingOp);
REGISTER_KERNEL_BUILDER(Name("ConfigureTPUEmbedding").Device(tensorflow::DEVICE_CPU),
                        ConfigureEmbeddingOp);
REGISTER_KERNEL_BUILDER(Name("ExecuteTPUEmbeddingPartitioner").Device(tensorflow::DEVICE_CPU),
                        PartitionerOp);
REGISTER_KERNEL_BUILDER(Name("ConfigureTPUEmbeddingMemory").Device(tensorflow::DEVICE_CPU),
                        MemoryOp);
REGISTER_KERNEL_BUILDER(Name("CollateTPUEmbeddingMemory").Device(tensorflow::DEVICE_CPU), MemoryOp);
REGISTER_KERNEL_BUILDER(Name("ConfigureTPUEmbeddingHost").Device(tensorflow::DEVICE_CPU),
                        ConfigureHostOp);
REGISTER_KERNEL_BUILDER(Name("ConnectTPUEmbeddingHosts").Device(tensorflow::DEVICE_CPU), NothingOp);
REGISTER_KERNEL_BUILDER(Name("FinalizeTPUEmbedding").Device(tensorflow::DEVICE_CPU), NothingOp);
REGISTER_KERNEL_BUILDER(Name("IsTPUEmbeddingInitialized").Device(tensorflow::DEVICE_CPU),
                        IsInitializedOp);
REGISTER_KERNEL_BUILDER(Name("IsTPUEmbeddingInitialized")
                            .Device(kTpuSystemDeviceType)
                            .HostMemory("is_tpu_embedding_initialized"),
                        IsInitializedOp);

}  // namespace
}  // namespace tf_tpu_ext
