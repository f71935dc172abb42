// Between the form in which XLA's front end gives and its compiler takes a computation and the one
// that passes work on.
#ifndef TF_TPU_EXT_CC_COMPILER_HLO_MODULE_H_
#define TF_TPU_EXT_CC_COMPILER_HLO_MODULE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "xla/hlo/builder/xla_computation.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_module.h"

namespace tf_tpu_ext {

absl::StatusOr<std::unique_ptr<xla::HloModule>> ToModule(const xla::XlaComputation& computation);

xla::XlaComputation ToComputation(const xla::HloModule& module);

// An empty module, with the name and the settings of `module`, for another program.
std::unique_ptr<xla::HloModule> EmptyModuleLike(const xla::HloModule& module);

// Gives the module its entry computation, whose parameters and result have their shapes' layouts.
void AddEntry(std::unique_ptr<xla::HloComputation> entry, xla::HloModule* module);

// After the root of the entry computation has changed. Aliases of results are forgotten.
void ResultChanged(xla::HloModule* module);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_HLO_MODULE_H_
