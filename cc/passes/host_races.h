// Finds host variables that replicas use at the same time.
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
  // The Python line, if known.
  std::string source;
  // The cluster's name, and the function whose body contains it; empty if the graph does.
  std::string cluster;
  std::string function;
};

// Two accesses in no defined order: one replica performs the first, another the second. Both may be
// the same op.
struct HostRace {
  std::string computation;
  HostAccess write;
  HostAccess other;
  // Whether both are in branches. One replica alone may take these, and then there is no race.
  bool in_branches = false;
};

// The races of the computations that were traced with the option `check` on; `check` applies to
// those that were traced without the option. Ops that add to a variable or subtract from it don't
// race with each other. Two ops of different clusters are left out if collectives may keep them
// apart. The graph must not have gone through the bridge yet.
std::vector<HostRace> FindHostRaces(const tensorflow::Graph& graph,
                                    const tensorflow::FunctionLibraryDefinition& library,
                                    bool check);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PASSES_HOST_RACES_H_
