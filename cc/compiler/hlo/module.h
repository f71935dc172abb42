// Converts between XlaComputation, which XLA's front end returns and its compiler accepts, and
// HloModule, which passes work on.
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

// An empty module for another program, with the name and settings of `module`.
std::unique_ptr<xla::HloModule> EmptyModuleLike(const xla::HloModule& module);

// Makes `entry` the entry computation of the module. Parameters and results keep the layouts of
// their shapes.
void AddEntry(std::unique_ptr<xla::HloComputation> entry, xla::HloModule* module);

// Updates the module after the root of its entry computation has changed. Drops all aliases of
// results.
void ResultChanged(xla::HloModule* module);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_HLO_MODULE_H_
