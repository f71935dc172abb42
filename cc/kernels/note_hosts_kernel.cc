// Tells a worker where the other workers of its pod listen.
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cc/base/process.h"
#include "cc/pods/endpoints.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_tpu_ext {
namespace {

REGISTER_OP("TpuExt>NoteHosts")
    .Attr("tasks: list(string)")
    .Attr("addresses: list(string)")
    .SetIsStateful()
    .Doc(R"doc(
Tells the worker on which it runs where the other workers of its pod listen.

tasks: Their names, such as "/job:worker/replica:0/task:1".
addresses: The address of each, such as "host:8470".
)doc");

class NoteHostsOp : public tensorflow::OpKernel {
 public:
  explicit NoteHostsOp(tensorflow::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("tasks", &tasks_));
    OP_REQUIRES_OK(construction, construction->GetAttr("addresses", &addresses_));
    OP_REQUIRES(construction, tasks_.size() == addresses_.size(),
                absl::InvalidArgumentError(absl::StrCat(name(), " has ", tasks_.size(),
                                                        " tasks and ", addresses_.size(),
                                                        " addresses; each task needs one.")));
  }

  void Compute(tensorflow::OpKernelContext* /*context*/) override {
    for (size_t i = 0; i < tasks_.size(); ++i) {
      Process::Get().endpoints->Note(tasks_[i], addresses_[i]);
    }
  }

 private:
  std::vector<std::string> tasks_;
  std::vector<std::string> addresses_;
};

REGISTER_KERNEL_BUILDER(Name("TpuExt>NoteHosts").Device(tensorflow::DEVICE_CPU), NoteHostsOp);

}  // namespace
}  // namespace tf_tpu_ext
