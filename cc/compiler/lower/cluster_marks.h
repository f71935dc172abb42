// Which cluster of outside compilation each host computation of a program belongs to.
#ifndef TF_TPU_EXT_CC_COMPILER_LOWER_CLUSTER_MARKS_H_
#define TF_TPU_EXT_CC_COMPILER_LOWER_CLUSTER_MARKS_H_

#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace tf_tpu_ext {

// The channels to the host in the text of a module, and the marks (kClusterMark) of the clusters
// that they serve. The marks are in the locations of the bridge's host computations; one without a
// mark is left out.
std::map<std::string, std::string> ClusterMarks(absl::string_view module);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_LOWER_CLUSTER_MARKS_H_
