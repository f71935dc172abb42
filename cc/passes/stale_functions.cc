#include "cc/passes/stale_functions.h"

#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::FunctionDef;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::GraphOptimizationPassOptions;

// Before and after all other passes of the phase.
constexpr int kFirst = -999;
constexpr int kLast = 999;

constexpr char kMadeByPasses[] = "_tpu_ext_made_by_passes";

// What the library of the graph being worked on held before; the passes of a graph run on one
// thread.
struct InWork {
  const FunctionLibraryDefinition* library = nullptr;
  FunctionNames given;
};
thread_local InWork in_work;

bool IsOfSession(const GraphOptimizationPassOptions& options) {
  return !options.is_function_graph && options.flib_def != nullptr && options.graph != nullptr &&
         *options.graph != nullptr;
}

class DropStaleFunctionsPass : public tensorflow::GraphOptimizationPass {
 public:
  absl::Status Run(const GraphOptimizationPassOptions& options) override {
    if (!IsOfSession(options)) return absl::OkStatus();
    TF_ASSIGN_OR_RETURN(FunctionNames given, DropStaleFunctions(**options.graph, options.flib_def));
    in_work = {options.flib_def, std::move(given)};
    return absl::OkStatus();
  }
};

class MarkNewFunctionsPass : public tensorflow::GraphOptimizationPass {
 public:
  absl::Status Run(const GraphOptimizationPassOptions& options) override {
    if (!IsOfSession(options) || in_work.library != options.flib_def) return absl::OkStatus();
    const InWork done = std::exchange(in_work, {});
    return MarkNewFunctions(done.given, options.flib_def);
  }
};

REGISTER_OPTIMIZATION(tensorflow::OptimizationPassRegistry::PRE_PLACEMENT, kFirst,
                      DropStaleFunctionsPass);
REGISTER_OPTIMIZATION(tensorflow::OptimizationPassRegistry::PRE_PLACEMENT, kLast,
                      MarkNewFunctionsPass);

}  // namespace

absl::StatusOr<FunctionNames> DropStaleFunctions(const tensorflow::Graph& graph,
                                                 FunctionLibraryDefinition* library) {
  FunctionNames given;
  std::vector<std::string> marked;
  for (std::string& name : library->ListFunctionNames()) {
    if (library->Find(name)->attr().contains(kMadeByPasses)) {
      marked.push_back(std::move(name));
    } else {
      given.insert(std::move(name));
    }
  }
  // Finding out which functions a graph calls takes a copy of them all: most sessions, which have
  // no TPU computation, never pay for that.
  if (marked.empty()) return given;
  const FunctionLibraryDefinition called = library->ReachableDefinitions(graph);
  for (std::string& name : marked) {
    if (called.Contains(name)) {
      given.insert(std::move(name));
    } else {
      TF_RETURN_IF_ERROR(library->RemoveFunction(name));
    }
  }
  return given;
}

absl::Status MarkNewFunctions(const FunctionNames& given, FunctionLibraryDefinition* library) {
  for (const std::string& name : library->ListFunctionNames()) {
    if (given.contains(name)) continue;
    const auto record = library->FindRecord(name);
    FunctionDef function = record->fdef();
    (*function.mutable_attr())[kMadeByPasses].set_b(true);
    TF_RETURN_IF_ERROR(library->ReplaceFunction(name, function, record->stack_traces()));
  }
  return absl::OkStatus();
}

}  // namespace tf_tpu_ext
