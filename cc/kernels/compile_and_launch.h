// Kernels that compile a computation for the inputs that they get, and run it as a single-core
// program.
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

// Runs on the core of its device. Variables among the inputs are read when the core is free for the
// program, and get their new values before the next program that updates variables starts there, so
// no other thread's update is lost.
class CompileAndLaunchOp : public tensorflow::AsyncOpKernel {
 public:
  ~CompileAndLaunchOp() override;

  void ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) override;

 protected:
  // `computation` is its name in reports and errors, `constants` are the numbers of the inputs
  // whose values must be known at compile time, and `compile_options` are the options that it was
  // traced with.
  CompileAndLaunchOp(tensorflow::OpKernelConstruction* construction, std::string computation,
                     const std::vector<int>& constants, std::string compile_options);

  // Compiles the computation to an XLA module for these arguments.
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
  // Calls may come from any thread, several at once.
  absl::Mutex mutex_;
  // Keyed by the program's key. Written while the program is compiled, before anyone gets it, and
  // kept as long as it lives: whoever has the program finds its interface.
  struct Known {
    std::weak_ptr<Program> program;
    std::shared_ptr<const Interface> interface;
  };
  absl::flat_hash_map<std::string, Known> known_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_KERNELS_COMPILE_AND_LAUNCH_H_
