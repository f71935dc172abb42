#include "cc/passes/bridge_error.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "cc/base/machine.h"

namespace tf_tpu_ext {
namespace {

using Locate = std::function<std::string(const std::string&)>;

// What the bridge says of ops that could be moved to the host, and of ops that could not.
constexpr absl::string_view kUncompilable = "isn't compilable for TPU";
constexpr absl::string_view kInvalid = "Can't be both xla and non-xla";

// The text between two others, or an empty text.
absl::string_view Between(absl::string_view text, absl::string_view left, absl::string_view right) {
  const size_t begin = text.find(left);
  if (begin == absl::string_view::npos) return "";
  text.remove_prefix(begin + left.size());
  const size_t end = text.find(right);
  return end == absl::string_view::npos ? "" : text.substr(0, end);
}

// The op that a line complains about: "Type {{node name}}" or "Type (file:line)"; empty if it
// complains about none. A line is "place: error: loc(fused["Type:", "name"]): 'tf.Type' op
// complaint", with only one of place and loc() in it.
std::string DescribeOp(absl::string_view line, const Locate& locate) {
  constexpr absl::string_view kError = ": error: ";
  const size_t error = line.find(kError);
  if (error == absl::string_view::npos) return "";
  if (!absl::StrContains(line, kUncompilable) && !absl::StrContains(line, kInvalid)) return "";
  const absl::string_view type = Between(line, "'tf.", "' op ");
  if (type.empty()) return "";
  std::string described(type);
  const absl::string_view name = Between(line, ":\", \"", "\"]");
  if (!name.empty()) {
    // TensorFlow's Python code replaces this form with the line that made the node.
    return absl::StrCat(type, " {{node ", name, "}}");
  }
  if (const std::string where = locate ? locate(described) : ""; !where.empty()) {
    return absl::StrCat(type, " ", where);
  }
  const absl::string_view place = line.substr(0, error);
  const std::vector<absl::string_view> parts = absl::StrSplit(place, ':');
  if (parts.size() >= 3 && !absl::StartsWith(place, "<unknown>")) {
    // The column adds nothing.
    const size_t column = place.rfind(':');
    absl::StrAppend(&described, " (", place.substr(0, column), ")");
  }
  return described;
}

// What the bridge says about replicas to which it cannot give cores; empty if it says nothing about
// them.
std::string DescribePlacement(absl::string_view message) {
  constexpr absl::string_view kPlacement = "error in fetching TPU compilation/execution devices: ";
  const size_t begin = message.find(kPlacement);
  if (begin == absl::string_view::npos) return "";
  absl::string_view complaint = message.substr(begin + kPlacement.size());
  complaint = complaint.substr(0, complaint.find('\n'));
  const int cores = GetMachineOptions().cores;
  const absl::string_view replicas = complaint.substr(complaint.rfind(' ') + 1);
  if (absl::StartsWith(complaint, "'num_replicas' must be")) {
    return absl::StrCat("The TPU computation has ", replicas, " replicas; there are only ", cores,
                        " cores in the TPU topology. Without a device assignment a computation has "
                        "one replica or a replica for each core: write so many, or call "
                        "tf_tpu_ext.configure(cores=",
                        replicas, ") at the start of the program.");
  }
  return absl::StrCat(
      "The TPU computation was placed for another machine: ", complaint, "; there are only ", cores,
      " cores in the TPU topology. Make the device assignment from the topology "
      "that initialize_system returns, or call tf_tpu_ext.configure(cores=...) with "
      "the number of cores that the program wants.");
}

}  // namespace

absl::Status ExplainBridgeError(const absl::Status& status, const Locate& locate) {
  if (status.ok()) return status;
  if (std::string placement = DescribePlacement(status.message()); !placement.empty()) {
    return absl::InvalidArgumentError(std::move(placement));
  }
  std::vector<std::string> ops;
  for (absl::string_view line : absl::StrSplit(status.message(), '\n')) {
    std::string op = DescribeOp(line, locate);
    if (op.empty() || std::find(ops.begin(), ops.end(), op) != ops.end()) continue;
    ops.push_back(std::move(op));
  }
  if (ops.empty()) return status;
  std::string advice =
      ". Strings, resources of the host and the like stay on the host: wrap the op in "
      "tf.compat.v1.tpu.outside_compilation, or move it out of the computation";
  if (absl::StrContains(status.message(), kUncompilable)) {
    absl::StrAppend(&advice,
                    ", or let TensorFlow move it: allow_soft_placement=True in a session's "
                    "ConfigProto, tf.config.set_soft_device_placement(True) elsewhere");
  }
  if (absl::StrContains(status.message(), "'tf.InfeedDequeue' op")) {
    absl::StrAppend(&advice, ". InfeedDequeueTuple does what InfeedDequeue did");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("The TPU computation contains ", ops.size() == 1 ? "an op" : "ops",
                   " that a TPU cannot run: ", absl::StrJoin(ops, ", "), advice, "."));
}

}  // namespace tf_tpu_ext
