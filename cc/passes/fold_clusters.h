// Turns clusters of outside compilation into calls that the compiled program makes by itself. What
// is left is extracted by the bridge, into a host graph that runs beside the program.
#ifndef TF_TPU_EXT_CC_PASSES_FOLD_CLUSTERS_H_
#define TF_TPU_EXT_CC_PASSES_FOLD_CLUSTERS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/graph/graph.h"

namespace tf_tpu_ext {

// What becomes of one cluster.
struct ClusterReport {
  std::string cluster;
  // The function that the program calls; for a cluster that stays in the host graph the mark that
  // its ops and transfers bear.
  std::string counted_as;
  // Why it stays there.
  std::string reason;
  // The Python line that made it, if known.
  std::string source;
};

struct FoldedGraph {
  std::vector<ClusterReport> clusters;
  // Nodes of `graph` that are gone, each with the call that took its place.
  std::map<std::string, std::string> replaced;
};

// Folds the clusters of the TPU computations in `graph` and in the functions that it calls, which
// are copied into `library` under new names.
//
// A cluster becomes one function if nothing but tensors of the computation goes into it and it
// touches no state of the host that others see. Clusters with effects keep their order: they are
// folded all or none. Without `enabled` they are only reported; a computation that was traced with
// an option of its own goes by that.
absl::StatusOr<FoldedGraph> FoldClusters(tensorflow::Graph* graph,
                                         tensorflow::FunctionLibraryDefinition* library,
                                         bool enabled);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PASSES_FOLD_CLUSTERS_H_
