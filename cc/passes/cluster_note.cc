#include "cc/passes/cluster_note.h"

#include "cc/passes/host_function.h"
#include "tensorflow/core/framework/function.pb.h"
#include "tensorflow/core/lib/strings/proto_serialization.h"
#include "tensorflow/core/platform/statusor.h"

namespace tf_tpu_ext {

absl::StatusOr<tensorflow::Node*> AddNote(const HostCluster& cluster, const std::string& name,
                                          tensorflow::Graph* graph) {
  HostCluster note;
  note.owner = cluster.owner;
  note.computation = cluster.computation;
  tensorflow::FunctionDefLibrary functions;
  functions.add_function()->mutable_signature()->set_name(name);
  HostFunction function;
  function.name = name;
  function.source = SourceOf(cluster);
  tensorflow::SerializeToStringDeterministic(functions, &function.library);
  TF_ASSIGN_OR_RETURN(tensorflow::Node* const call, ReplaceByCall(note, function, graph));
  // In the same branch.
  graph->AddControlEdge(cluster.nodes.back(), call);
  return call;
}

}  // namespace tf_tpu_ext
