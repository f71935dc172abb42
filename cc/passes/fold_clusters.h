// Turns clusters of outside compilation into calls that the compiled program itself makes. The
// bridge extracts the rest into a host graph that runs alongside the program.
#ifndef TF_TPU_EXT_CC_PASSES_FOLD_CLUSTERS_H_
#define TF_TPU_EXT_CC_PASSES_FOLD_CLUSTERS_H_

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/graph/graph.h"

namespace tf_tpu_ext {

// The function whose body contains a cluster, empty if the graph does, and the cluster's name.
using ClusterPlace = std::pair<std::string, std::string>;

// What becomes of one cluster.
struct ClusterReport {
  std::string cluster;
  ClusterPlace place;
  // The function that the program calls or, for a cluster that stays in the host graph, the mark on
  // its ops and transfers.
  std::string counted_as;
  // What the program calls when it has reached the cluster, if that is noted.
  std::string noted_as;
  // Why the cluster stays there.
  std::string reason;
  // The Python line that made the cluster, if known.
  std::string source;
};

struct FoldedGraph {
  std::vector<ClusterReport> clusters;
  // Removed nodes of `graph`, each with the call that took its place.
  std::map<std::string, std::string> replaced;
};

// Folds the clusters of the TPU computations in `graph` and in the functions that it calls, which
// are copied into `library` under new names.
//
// A cluster becomes one function if all of its inputs are tensors of the computation and it touches
// no host state that others see. Clusters with effects keep their order: either all of them are
// folded or none. Without `enabled`, clusters are only reported; a computation that was traced with
// its own option follows that. Of the clusters in `noted` that stay, the program notes which
// replicas reach them (cluster_note.h).
absl::StatusOr<FoldedGraph> FoldClusters(tensorflow::Graph* graph,
                                         tensorflow::FunctionLibraryDefinition* library,
                                         bool enabled, const std::set<ClusterPlace>& noted);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PASSES_FOLD_CLUSTERS_H_
