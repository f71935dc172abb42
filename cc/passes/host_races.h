// Finds variables of the host that replicas use at the same time.
#ifndef TF_TPU_EXT_CC_PASSES_HOST_RACES_H_
#define TF_TPU_EXT_CC_PASSES_HOST_RACES_H_

#include <string>
#include <vector>

#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/graph/graph.h"

namespace tf_tpu_ext {

// One op of a cluster that uses a variable.
struct HostAccess {
  std::string op;
  // The Python line, if it is known.
  std::string source;
};

// Two accesses of which nothing says which comes first: one replica makes the first, another one
// the second. They may be the same op.
struct HostRace {
  std::string computation;
  HostAccess write;
  HostAccess other;
};

// The races of the computations that were traced with the option `check`, or that `check` holds for
// if they say nothing. Ops that add to a variable or subtract from it don't race with each other,
// nor do two ops in branches: maybe one replica alone takes them. Two ops of different clusters are
// left out if collectives may keep them apart. The graph must not have met the bridge yet.
std::vector<HostRace> FindHostRaces(const tensorflow::Graph& graph,
                                    const tensorflow::FunctionLibraryDefinition& library,
                                    bool check);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PASSES_HOST_RACES_H_
