// The functions on the host that a compiled program itself calls.
#ifndef TF_TPU_EXT_CC_TRANSFER_HOST_FUNCTIONS_H_
#define TF_TPU_EXT_CC_TRANSFER_HOST_FUNCTIONS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cc/base/core_threads.h"
#include "cc/program/host_function_source.h"
#include "cc/transfer/transfer_stats.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/tensor.h"

namespace tensorflow {
class ProcessFunctionLibraryRuntime;
}  // namespace tensorflow

namespace tf_tpu_ext {

// How a function may run.
enum class HostFunctionKind {
  // Nothing in it can block or has effects: it may run on a thread of the program.
  kPure,
  // Nothing in it can block.
  kComputes,
  // One op may block: the function runs on a single host thread.
  kBlocks,
  // Several ops may block, and may even wait for each other: each runs on its own thread.
  kBlocksInParallel,
};

class HostFunctions {
 public:
  using Done = std::function<void(absl::StatusOr<std::vector<tensorflow::Tensor>>)>;

  static absl::StatusOr<std::shared_ptr<HostFunctions>> Create(
      const std::vector<HostFunctionSource>& sources, int num_slots, CoreThreads* host_threads,
      TransferStats* stats);
  ~HostFunctions();

  HostFunctionKind kind(int number) const { return functions_[number].kind; }
  ClusterCounters& counters(int number) const { return *functions_[number].counters; }
  const std::string& name(int number) const { return functions_[number].name; }
  // How errors name the function.
  const std::string& source(int number) const { return functions_[number].source; }
  const std::string& description(int number) const { return functions_[number].description; }

  // Runs a function that is not of kind kBlocksInParallel on the calling thread, for one slot of
  // the program.
  absl::Status Run(int number, int slot, tensorflow::CancellationManager* cancellation,
                   absl::Span<const tensorflow::Tensor> inputs,
                   std::vector<tensorflow::Tensor>* outputs) const;

  // Starts a function of any kind on `host_threads`; `done` is called on one of them.
  void Start(int number, int slot, std::shared_ptr<tensorflow::CancellationManager> cancellation,
             std::vector<tensorflow::Tensor> inputs, Done done) const;

 private:
  struct Function {
    HostFunctionKind kind = HostFunctionKind::kBlocksInParallel;
    bool calls_python = false;
    std::string name;
    std::string description;
    std::string source;
    // By slot: stateful ops, such as random ones, have their own state for each replica.
    std::vector<tensorflow::FunctionLibraryRuntime::Handle> handles;
    std::shared_ptr<ClusterCounters> counters;
  };

  using Runner = std::function<void(std::function<void()>)>;

  explicit HostFunctions(CoreThreads* host_threads);

  absl::StatusOr<tensorflow::FunctionLibraryRuntime::Handle> Instantiate(
      const std::string& name, const std::string& state, const std::string& executor) const;

  // Run ops that may block; the second one is for functions that call Python.
  mutable Runner runner_;  // TensorFlow does not accept a const one
  mutable Runner python_runner_;
  std::unique_ptr<tensorflow::FunctionLibraryDefinition> definitions_;
  std::unique_ptr<tensorflow::ProcessFunctionLibraryRuntime> runtime_;
  tensorflow::FunctionLibraryRuntime* library_ = nullptr;
  std::vector<Function> functions_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_TRANSFER_HOST_FUNCTIONS_H_
