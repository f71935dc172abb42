// Finds which ops of TensorFlow 1's conditionals run only if a branch is taken.
#ifndef TF_TPU_EXT_CC_PASSES_SWITCH_BRANCHES_H_
#define TF_TPU_EXT_CC_PASSES_SWITCH_BRANCHES_H_

#include <functional>
#include <map>
#include <set>
#include <string>

#include "tensorflow/core/framework/node_def.pb.h"

namespace tf_tpu_ext {

// Branches that must all be taken, each given as the predicate and the value that selects it.
using Branches = std::set<std::string>;

// The branches of each node between Switch and Merge ops, by name; other nodes are left out.
// Iterations of a loop are not branches. `maker_of` names the node that makes an input, through ops
// that pass it on.
std::map<std::string, Branches> FindSwitchBranches(
    const std::map<std::string, const tensorflow::NodeDef*>& nodes,
    const std::function<std::string(const std::string& input)>& maker_of);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PASSES_SWITCH_BRANCHES_H_
