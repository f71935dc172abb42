// Ops through which a client and the workers of a pod inform each other.
#include "cc/kernels/pod_kernels.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cc/base/json.h"
#include "cc/base/machine.h"
#include "cc/base/process.h"
#include "cc/describe/describe.h"
#include "cc/pods/endpoints.h"
#include "cc/pods/host_traffic.h"
#include "cc/program/compilation_record.h"
#include "cc/runtime/collective_table.h"
#include "cc/runtime/first_launches.h"
#include "cc/runtime/padding_stats.h"
#include "cc/runtime/program_cache.h"
#include "cc/transfer/transfer_stats.h"
#include "tensorflow/core/framework/common_shape_fns.h"
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

REGISTER_OP("TpuExt>DescribeHost")
    .Output("description: string")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
Describes the worker on which it runs.

description: A JSON object with the versions `tensorflow` and `tf_tpu_ext`, the number of `cores`,
  and the worker's clock in `seconds` since 1970. Of all programs so far: `launches`, `compilations`
  and `compilation_seconds`; `messages` and `bytes` sent to other workers, and `wait_seconds` for
  theirs.
)doc");

struct Versions {
  absl::Mutex mutex;
  std::string package ABSL_GUARDED_BY(mutex);
  std::string tensorflow ABSL_GUARDED_BY(mutex);
};

// Never deleted: ops may run until the process ends.
Versions& VersionsHere() {
  static auto* const versions = new Versions;
  return *versions;
}

void CountPrograms(JsonObject* json) {
  int64_t launches = 0;
  absl::Duration compiling;
  const std::vector<CompilationRecord> records = Process::Get().programs->Records();
  for (const CompilationRecord& record : records) {
    launches += record.hits + (record.error.empty() ? 1 : 0);
    compiling += record.lowering + record.building;
  }
  json->Integer("launches", launches)
      .Integer("compilations", static_cast<int64_t>(records.size()))
      .Number("compilation_seconds", absl::ToDoubleSeconds(compiling));
}

// An op whose result is a JSON object.
class DescribingOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext* context) final {
    tensorflow::Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &output));
    output->scalar<tensorflow::tstring>()() = Described().Text();
  }

 private:
  virtual JsonObject Described() const = 0;
};

class DescribeHostOp : public DescribingOp {
  using DescribingOp::DescribingOp;

  JsonObject Described() const override {
    JsonObject json;
    json.Integer("cores", GetMachineOptions().cores)
        .Number("seconds", absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
    const HostTraffic& traffic = *Process::Get().host_traffic;
    json.Integer("messages", traffic.messages())
        .Integer("bytes", traffic.bytes())
        .Number("wait_seconds", absl::ToDoubleSeconds(traffic.waited()));
    CountPrograms(&json);
    {
      Versions& versions = VersionsHere();
      absl::MutexLock lock(&versions.mutex);
      json.String("tf_tpu_ext", versions.package).String("tensorflow", versions.tensorflow);
    }
    return json;
  }
};

REGISTER_KERNEL_BUILDER(Name("TpuExt>DescribeHost").Device(tensorflow::DEVICE_CPU), DescribeHostOp);

REGISTER_OP("TpuExt>DescribeWork")
    .Output("description: string")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
Tells what the worker on which it runs has compiled, launched and waited for.

description: A JSON object with the lists `compilations`, `collectives`, `meetings` (when cores came
  to the first collectives), `launches` (when the first of them ran), `clusters` (of outside
  compilation) and `padded_inputs`.
)doc");

class DescribeWorkOp : public DescribingOp {
  using DescribingOp::DescribingOp;

  JsonObject Described() const override {
    const Process& process = Process::Get();
    const CollectiveStats& collectives = process.collectives->stats();
    return JsonObject()
        .Objects("compilations", DescribeAll(process.programs->Records()))
        .Objects("collectives", DescribeAll(collectives.Totals()))
        .Objects("meetings", DescribeAll(collectives.Meetings()))
        .Objects("launches", DescribeAll(process.first_launches->Get()))
        .Objects("clusters", DescribeAll(process.transfer_stats->RecordedClusters()))
        .Objects("padded_inputs", DescribeAll(process.padding->Inputs()));
  }
};

REGISTER_KERNEL_BUILDER(Name("TpuExt>DescribeWork").Device(tensorflow::DEVICE_CPU), DescribeWorkOp);

REGISTER_OP("TpuExt>DescribeProgress")
    .Attr("age_seconds: float")
    .Output("description: string")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
Tells what the worker does now on which it runs.

age_seconds: Waits that have not lasted for so long are left out.
description: A JSON object with `ended` (the number of launches that have), `run_id`, `program` and
  `waits` of the oldest launch that goes on, and the list `ongoing` of compilations.
)doc");

class DescribeProgressOp : public DescribingOp {
 public:
  explicit DescribeProgressOp(tensorflow::OpKernelConstruction* construction)
      : DescribingOp(construction) {
    float seconds = 0;
    OP_REQUIRES_OK(construction, construction->GetAttr("age_seconds", &seconds));
    age_ = absl::Seconds(seconds);
  }

 private:
  JsonObject Described() const override { return DescribeProgress(age_); }

  absl::Duration age_;
};

REGISTER_KERNEL_BUILDER(Name("TpuExt>DescribeProgress").Device(tensorflow::DEVICE_CPU),
                        DescribeProgressOp);

}  // namespace

void SetVersions(const std::string& package, const std::string& tensorflow) {
  Versions& versions = VersionsHere();
  absl::MutexLock lock(&versions.mutex);
  versions.package = package;
  versions.tensorflow = tensorflow;
}

}  // namespace tf_tpu_ext
