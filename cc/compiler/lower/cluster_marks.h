// Finds the cluster of outside compilation that each host computation of a program belongs to.
#ifndef TF_TPU_EXT_CC_COMPILER_LOWER_CLUSTER_MARKS_H_
#define TF_TPU_EXT_CC_COMPILER_LOWER_CLUSTER_MARKS_H_

#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace tf_tpu_ext {

// Maps the channels to the host in the text of a module to the marks (kClusterMark) of the clusters
// that they serve. The marks are in the locations of the bridge's host computations. Computations
// without a mark are left out.
std::map<std::string, std::string> ClusterMarks(absl::string_view module);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_LOWER_CLUSTER_MARKS_H_
