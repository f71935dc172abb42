// Fakes for the threads, programs and transfers in tests of launches.
#ifndef TF_TPU_EXT_CC_RUNTIME_LAUNCH_FAKES_H_
#define TF_TPU_EXT_CC_RUNTIME_LAUNCH_FAKES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/log/log.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cc/base/compute_pool.h"
#include "cc/base/core_numbers.h"
#include "cc/base/launch_numbers.h"
#include "cc/base/wait_monitor_testing.h"
#include "cc/program/value_numbers.h"
#include "cc/runtime/launch_transfers.h"
#include "cc/runtime/program.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {

inline tensorflow::Tensor FloatTensor(const std::vector<float>& values) {
  tensorflow::Tensor tensor(tensorflow::DT_FLOAT,
                            tensorflow::TensorShape({static_cast<int64_t>(values.size())}));
  for (size_t i = 0; i < values.size(); ++i) tensor.flat<float>()(i) = values[i];
  return tensor;
}

inline std::vector<float> FloatsOf(const tensorflow::Tensor& tensor) {
  const auto flat = tensor.flat<float>();
  return {flat.data(), flat.data() + flat.size()};
}

// A pool of two threads that runs everything on the caller's thread.
class FakePool : public ComputePool {
 public:
  void Schedule(std::function<void()> work) override { work(); }
  int NumThreads() const override { return 2; }
  bool IsCaller() const override { return is_caller; }

  bool is_caller = false;
};

// Logs what it is asked to do.
class FakeTransfers : public LaunchTransfers {
 public:
  void Abort(LaunchId launch_id, const absl::Status& status) override {
    log.push_back(absl::StrCat("abort ", launch_id, ": ", status.message()));
  }
  void Finish(LaunchId launch_id) override { log.push_back(absl::StrCat("finish ", launch_id)); }
  void DropQueued(const TakenQueues& queues, absl::Span<const Core> cores, int64_t step_id,
                  const absl::Status& status) override {
    log.push_back(absl::StrCat("drop of cores ", absl::StrJoin(cores, ","), " in step ", step_id,
                               ": ", status.message()));
  }

  std::vector<std::string> log;
};

// A program whose runs end when the test says so.
class FakeProgram : public Program {
 public:
  struct Run {
    CoreContext core;
    Arguments arguments;
    RunOptions options;
    Done done;

    const tensorflow::Tensor& argument(int number) const {
      return arguments[ArgumentNumber(number)];
    }
    void End(Outputs outputs) {
      arguments.clear();
      std::move(done)(absl::OkStatus(), std::move(outputs));
    }
    void Fail(const absl::Status& status) {
      arguments.clear();
      std::move(done)(status, {});
    }
  };

  using Program::Parts;

  explicit FakeProgram(CompiledProgram compiled, Parts parts = {})
      : Program(ProgramServices(), std::make_shared<const CompiledProgram>(std::move(compiled)),
                std::move(parts)) {}

  void Start(CoreContext core, Arguments arguments, RunOptions options, Done done) override {
    runs.push_back({core, std::move(arguments), std::move(options), std::move(done)});
    // On this thread, because what a run in place waits for can't come from another thread.
    if (on_start) on_start(runs.back());
  }

  // The first run of the slot.
  Run& OfSlot(Slot slot) {
    for (Run& run : runs) {
      if (run.core.slot == slot) return run;
    }
    LOG(FATAL) << "Slot " << slot << " has not started.";
  }

  absl::StatusOr<std::shared_ptr<Program>> BuildAlone() const override { return build_alone(); }

  // In the order in which they started.
  std::vector<Run> runs;
  std::function<absl::StatusOr<std::shared_ptr<Program>>()> build_alone;
  std::function<void(Run&)> on_start;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_LAUNCH_FAKES_H_
