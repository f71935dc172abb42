// Makes a program show its values while it runs.
#ifndef TF_TPU_EXT_CC_COMPILER_HLO_INSERT_PROBES_H_
#define TF_TPU_EXT_CC_COMPILER_HLO_INSERT_PROBES_H_

#include "cc/program/probes.h"
#include "xla/hlo/ir/hlo_module.h"

namespace tf_tpu_ext {

// Gives each array that an op computes a probe, in the entry computation and in whatever it runs of
// loops, branches and calls. Copies in another shape, constants and what a loop only passes on have
// none. The module must not be optimized yet. Source lines and variables are left empty.
//
// If XLA is to divide arrays over the cores of a replica, `divided`, each core shows its part.
// Arrays of dynamic size have no probes then: no core knows how much of its part is true.
Probes InsertProbes(xla::HloModule* module, bool divided = false);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_HLO_INSERT_PROBES_H_
