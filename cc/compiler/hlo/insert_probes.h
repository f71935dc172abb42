// Makes a program show its values while it runs.
#ifndef TF_TPU_EXT_CC_COMPILER_HLO_INSERT_PROBES_H_
#define TF_TPU_EXT_CC_COMPILER_HLO_INSERT_PROBES_H_

#include "cc/program/probes.h"
#include "xla/hlo/ir/hlo_module.h"

namespace tf_tpu_ext {

// Adds a probe to each array that an op computes, in the entry computation and in all loops,
// branches and calls that it runs. Copies in another shape, constants, and values that a loop only
// passes on get none. The module must not be optimized yet. Source lines and variables are left
// empty.
//
// `divided` says that XLA will divide arrays over the cores of a replica. Each core then shows its
// own part, and arrays of dynamic size get no probes, because no core knows how much of its part is
// real data.
Probes InsertProbes(xla::HloModule* module, bool divided = false);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_HLO_INSERT_PROBES_H_
