// Programs that are compiled only for a real TPU, and do nothing here.
#ifndef TF_TPU_EXT_CC_COMPILER_HLO_SKIP_COMPUTATION_H_
#define TF_TPU_EXT_CC_COMPILER_HLO_SKIP_COMPUTATION_H_

#include <map>
#include <memory>

#include "xla/hlo/ir/hlo_module.h"

namespace tf_tpu_ext {

// A module with the parameters and results of another, whose result must be a tuple, that computes
// nothing. Each result is the parameter that `parameter_of_result` assigns to it, if the shapes
// match, and otherwise zeros.
std::unique_ptr<xla::HloModule> WithoutComputation(const std::map<int, int>& parameter_of_result,
                                                   const xla::HloModule& module);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_HLO_SKIP_COMPUTATION_H_
