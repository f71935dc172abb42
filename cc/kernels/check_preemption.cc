#include "cc/kernels/check_preemption.h"

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "tensorflow/core/framework/kernel_def.pb.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_def_builder.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_tpu_ext {
namespace {

constexpr char kOp[] = "CheckPreemption";
// The payload by which the handler recognizes the error; its value names the task.
constexpr char kWorkerPreemption[] =
    "type.googleapis.com/tensorflow.distributed_runtime.WorkerPreemption";
constexpr char kThisProcess[] = "the host of the virtual TPU";

std::atomic<bool> preempted{false};

class CheckPreemptionOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext* context) override {
    if (!preempted) return;
    absl::Status status = absl::AbortedError(
        "This process got SIGTERM. The training step did not run; save a checkpoint and end.");
    status.SetPayload(kWorkerPreemption, absl::Cord(kThisProcess));
    context->SetStatus(status);
  }
};

}  // namespace

void RegisterCheckPreemption() {
  tensorflow::OpRegistry* const ops = tensorflow::OpRegistry::Global();
  if (ops->LookUp(kOp) == nullptr) {
    ops->Register([](tensorflow::OpRegistrationData* op) {
      return tensorflow::OpDefBuilder(kOp)
          .Attr("preemption_key: string = 'TF_DEFAULT_PREEMPTION_NOTICE_KEY'")
          .SetIsStateful()
          .SetIsDistributedCommunication()
          .Doc("Fails with ABORTED once the process has been told to end.")
          .Finalize(op);
    });
  }
  if (tensorflow::GetRegisteredKernelsForOp(kOp).kernel_size() > 0) return;
  auto kernel = std::make_unique<tensorflow::KernelDef>();
  kernel->set_op(kOp);
  kernel->set_device_type(tensorflow::DEVICE_CPU);
  tensorflow::kernel_factory::OpKernelRegistrar(
      kernel.release(), "CheckPreemptionOp",
      [](tensorflow::OpKernelConstruction* construction) -> tensorflow::OpKernel* {
        return new CheckPreemptionOp(construction);
      });
}

void SetPreempted(bool value) { preempted = value; }

}  // namespace tf_tpu_ext
