#include "cc/kernels/core_placement.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cc/device/topology.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/function.pb.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/platform/errors.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::FunctionDef;
using tensorflow::NodeDef;

bool IsMetadata(const NodeDef& node) { return node.op() == "TPUReplicateMetadata"; }

int64_t IntegerAttribute(const NodeDef& node, const char* name, int64_t missing) {
  const auto found = node.attr().find(name);
  return found == node.attr().end() ? missing : found->second.i();
}

absl::Status PlaceOnMesh(int ordinal, const Mesh& mesh, NodeDef* metadata) {
  const std::vector<Mesh> coordinates = CoreCoordinates(mesh);
  const int64_t cores = static_cast<int64_t>(coordinates.size());
  const int64_t replicas = IntegerAttribute(*metadata, "num_replicas", 1);
  if (replicas != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "A computation that is called on one core must have one replica; '", metadata->name(),
        "' has ", replicas, ". Build it with tpu.rewrite instead of tpu.replicate."));
  }
  const int64_t size =
      std::max<int64_t>(1, IntegerAttribute(*metadata, "num_cores_per_replica", /*missing=*/1));
  const int64_t first = ordinal / size * size;
  if (first + size > cores) {
    return absl::InvalidArgumentError(absl::StrCat(
        "A replica of ", size, " cores that has core ", ordinal, " would take the cores ", first,
        " to ", first + size - 1, "; this virtual TPU has the cores 0 to ", cores - 1,
        ". Use a lower ordinal, or more cores: tf_tpu_ext.configure(cores=...)."));
  }
  auto& attributes = *metadata->mutable_attr();
  attributes["topology"].set_s(MakeTopology(mesh).SerializeAsString());
  auto* assignment = attributes["device_assignment"].mutable_list();
  assignment->Clear();
  for (int64_t core = first; core < first + size; ++core) {
    for (int coordinate : coordinates[core]) assignment->add_i(coordinate);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status PlaceOnCore(int ordinal, const Mesh& mesh,
                         tensorflow::FunctionLibraryDefinition* library) {
  const int cores = static_cast<int>(CoreCoordinates(mesh).size());
  if (ordinal < 0 || ordinal >= cores) {
    return absl::InvalidArgumentError(absl::StrCat(
        "There is no core ", ordinal, "; this virtual TPU has the cores 0 to ", cores - 1,
        ". Pass one of them as device_ordinal, or the output of "
        "tpu_ops.tpu_ordinal_selector()."));
  }
  for (const std::string& name : library->ListFunctionNames()) {
    const auto record = library->FindRecord(name);
    const auto& nodes = record->fdef().node_def();
    if (std::none_of(nodes.begin(), nodes.end(), IsMetadata)) continue;
    FunctionDef function = record->fdef();
    for (NodeDef& node : *function.mutable_node_def()) {
      if (!IsMetadata(node)) continue;
      TF_RETURN_IF_ERROR(PlaceOnMesh(ordinal, mesh, &node));
    }
    TF_RETURN_IF_ERROR(library->ReplaceFunction(name, function, record->stack_traces()));
  }
  return absl::OkStatus();
}

}  // namespace tf_tpu_ext
