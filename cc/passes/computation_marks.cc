#include "cc/passes/computation_marks.h"

#include "absl/strings/match.h"
#include "cc/ops/op_names.h"

namespace tf_tpu_ext {
namespace {

// TPUCompilationResult names its computation in an attribute of its own.
constexpr char kCompilationStatus[] = "_tpu_compilation_status";

}  // namespace

std::string MarkedComputation(const tensorflow::NodeDef& node) {
  for (const char* mark : {kTpuReplicate, kCompilationStatus}) {
    const auto found = node.attr().find(mark);
    if (found != node.attr().end()) return found->second.s();
  }
  return "";
}

bool IsReplicatedInput(const std::string& op) {
  return op == "TPUReplicatedInput" || absl::StartsWith(op, "TPUPartitionedInput");
}

bool IsReplicatedOutput(const std::string& op) {
  return op == "TPUReplicatedOutput" || absl::StartsWith(op, "TPUPartitionedOutput");
}

}  // namespace tf_tpu_ext
