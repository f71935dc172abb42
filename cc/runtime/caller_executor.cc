#include "cc/runtime/caller_executor.h"

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "cc/base/float_mode.h"
#include "cc/ops/execute_nodes.h"
#include "tensorflow/core/common_runtime/executor.h"
#include "tensorflow/core/common_runtime/executor_factory.h"
#include "tensorflow/core/common_runtime/local_executor_params.h"
#include "tensorflow/core/graph/algorithm.h"
#include "tensorflow/core/platform/errors.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Executor;
using tensorflow::Graph;
using tensorflow::Node;

bool IsCompile(const Node& node) { return node.type_string() == "_TPUCompileMlir"; }

// Ops that never wait, no two of which justify a thread each.
bool IsShort(const Node& node) {
  static const auto* types = new absl::flat_hash_set<absl::string_view>{
      "Add",
      "AddN",
      "AddV2",
      "AssignAddVariableOp",
      "AssignSubVariableOp",
      "AssignVariableOp",
      "Cast",
      "ConcatV2",
      "DivNoNan",
      "Equal",
      "ExpandDims",
      "FloorMod",
      "Greater",
      "GreaterEqual",
      "IdentityN",
      "Less",
      "LessEqual",
      "LogicalAnd",
      "LogicalNot",
      "LogicalOr",
      "LoopCond",
      "Maximum",
      "Mean",
      "Minimum",
      "Mul",
      "NoOp",
      "NotEqual",
      "Pack",
      "ReadVariableOp",
      "RealDiv",
      "Reshape",
      "Shape",
      "Squeeze",
      "StopGradient",
      "StridedSlice",
      "Sub",
      "Sum",
      "TPUCompileSucceededAssert",
      "Unpack",
      "VarHandleOp",
  };
  return node.IsArg() || node.IsRetval() || node.IsConstant() || node.IsIdentity() ||
         node.IsControlFlow() || types->contains(node.type_string());
}

// Work that the executor hands to its threads while this thread is inside it. It runs here instead.
class CallerWork {
 public:
  CallerWork() : outer_(current) { current = this; }
  ~CallerWork() { current = outer_; }
  CallerWork(const CallerWork&) = delete;
  CallerWork& operator=(const CallerWork&) = delete;

  // The current thread's instance, or null outside an executor.
  static CallerWork* Current() { return current; }

  void Add(Executor::Args::Closure work) { work_.push_back(std::move(work)); }

  void Run() {
    while (!work_.empty()) {
      const Executor::Args::Closure work = std::move(work_.front());
      work_.pop_front();
      work();
    }
  }

 private:
  static thread_local CallerWork* current;
  CallerWork* const outer_;
  std::deque<Executor::Args::Closure> work_;
};

thread_local CallerWork* CallerWork::current = nullptr;

class CallerExecutor : public Executor {
 public:
  CallerExecutor(std::unique_ptr<Executor> executor, CallersPart part)
      : executor_(std::move(executor)), part_(part) {}

 private:
  void RunAsyncInternal(const Args& args, DoneCallback done) override {
    Args of_caller = args;
    of_caller.run_all_kernels_inline = true;
    of_caller.runner = [others = args.runner,
                        whole = part_ == CallersPart::kWhole](Args::Closure work) {
      if (CallerWork* caller = CallerWork::Current()) {
        caller->Add(std::move(work));
      } else if (whole) {
        work();
      } else {
        others(std::move(work));
      }
    };
    // As on TensorFlow's own threads.
    const TensorFlowFloatMode float_mode;
    // Once the executor's work is done, its owner may delete it. Nothing below refers to it.
    CallerWork work;
    executor_->RunAsync(of_caller, std::move(done));
    work.Run();
  }

  const std::unique_ptr<Executor> executor_;
  const CallersPart part_;
};

class CallerExecutorFactory : public tensorflow::ExecutorFactory {
 public:
  absl::Status NewExecutor(const tensorflow::LocalExecutorParams& params, const Graph& graph,
                           std::unique_ptr<Executor>* executor) override {
    Executor* made = nullptr;
    TF_RETURN_IF_ERROR(tensorflow::NewLocalExecutor(params, graph, &made));
    executor->reset(made);
    const CallersPart part = PartOfCaller(graph);
    if (part != CallersPart::kNothing) {
      *executor = std::make_unique<CallerExecutor>(std::move(*executor), part);
    }
    return absl::OkStatus();
  }
};

const bool kCallerExecutorRegistered = [] {
  static auto* factory = new CallerExecutorFactory;
  tensorflow::ExecutorFactory::Register(kCallerExecutor, factory);
  return true;
}();

}  // namespace

CallersPart PartOfCaller(const Graph& graph) {
  std::vector<const Node*> executes;
  for (const Node* node : graph.op_nodes()) {
    if (IsExecute(*node)) {
      executes.push_back(node);
    } else if (!IsCompile(*node) && !IsShort(*node)) {
      return CallersPart::kNothing;
    }
  }
  if (executes.empty()) return CallersPart::kNothing;
  bool programs_follow = false;
  std::vector<const Node*> after;
  for (const Node* execute : executes) {
    for (const Node* next : execute->out_nodes()) after.push_back(next);
  }
  tensorflow::DFSFrom(
      graph, after,
      [&](const Node* node) {
        programs_follow = programs_follow || IsExecute(*node) || IsCompile(*node);
      },
      /*leave=*/nullptr);
  return programs_follow ? CallersPart::kStart : CallersPart::kWhole;
}

}  // namespace tf_tpu_ext
