// Kernels that compile a computation for the inputs they get, and run it as a program of one core.
#ifndef TF_TPU_EXT_CC_KERNELS_COMPILE_AND_LAUNCH_H_
#define TF_TPU_EXT_CC_KERNELS_COMPILE_AND_LAUNCH_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "cc/compiler/lower/lower_module.h"
#include "cc/program/compilation_record.h"
#include "tensorflow/compiler/tf2xla/xla_compiler.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_tpu_ext {

struct LoweredModule;
class Program;

// Runs on the core that its device is. Variables among the inputs are read when the core is free
// for the program, and get their new values before the next program that updates variables starts
// there: no update of another thread is lost.
class CompileAndLaunchOp : public tensorflow::AsyncOpKernel {
 public:
  ~CompileAndLaunchOp() override;

  void ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) override;

 protected:
  // `computation` is what reports and errors call it, `constants` are the numbers of the inputs
  // whose value must be known at compile time, and `compile_options` those that it was traced with.
  CompileAndLaunchOp(tensorflow::OpKernelConstruction* construction, std::string computation,
                     const std::vector<int>& constants, std::string compile_options);

  // Compiles the computation to a module of XLA for these arguments. `library` has the functions
  // that the compiler looks up.
  virtual absl::Status Lower(tensorflow::OpKernelContext* context,
                             tensorflow::XlaCompiler* compiler,
                             const tensorflow::XlaCompiler::CompileOptions& options,
                             absl::Span<const tensorflow::XlaArgument> arguments,
                             tensorflow::XlaCompilationResult* result) = 0;

 private:
  struct Interface;
  struct Call;

  absl::Status DescribeArguments(tensorflow::OpKernelContext* context, Call* call) const;
  absl::StatusOr<std::shared_ptr<Program>> Compile(tensorflow::OpKernelContext* context, int64_t id,
                                                   const Call& call, CompilationRecord* record);
  std::vector<RecordedArgument> RecordArguments(tensorflow::OpKernelContext* context,
                                                const Call& call) const;
  absl::Status LowerCall(tensorflow::OpKernelContext* context, const Call& call,
                         LoweredModule* lowered);
  absl::StatusOr<std::shared_ptr<const Interface>> InterfaceOf(const std::string& key);
  static absl::Status WriteResults(tensorflow::OpKernelContext* context, const Call& call,
                                   std::vector<tensorflow::Tensor> outputs);

  const std::string computation_;
  const std::set<int> constants_;
  const std::string compile_options_;
  const std::string key_prefix_;
  // Calls come on any thread, at once.
  absl::Mutex mutex_;
  // By the key of the program. Written while the program is compiled, before anybody gets it, and
  // kept as long as it lives: who has the program finds its interface.
  struct Known {
    std::weak_ptr<Program> program;
    std::shared_ptr<const Interface> interface;
  };
  absl::flat_hash_map<std::string, Known> known_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_KERNELS_COMPILE_AND_LAUNCH_H_
