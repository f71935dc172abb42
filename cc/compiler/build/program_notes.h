// Finds what is slow on a TPU in a program.
#ifndef TF_TPU_EXT_CC_COMPILER_BUILD_PROGRAM_NOTES_H_
#define TF_TPU_EXT_CC_COMPILER_BUILD_PROGRAM_NOTES_H_

#include <string>
#include <vector>

#include "cc/compiler/lower/op_lines.h"
#include "cc/program/compilation_record.h"
#include "xla/hlo/ir/hlo_module.h"

namespace tf_tpu_ext {

// Notes values of emulated types and of dynamic sizes, host calls in loops, and matrix products
// that leave most of a matrix unit idle, each kind and type once. The module, for this machine or
// for a target, must not be optimized yet.
std::vector<ProgramNote> NotesOf(const xla::HloModule& module, const OpLines& lines);

// The TensorFlow op of the first instruction that has one. Empty if there is none.
std::string FirstOp(const xla::HloModule& module);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_BUILD_PROGRAM_NOTES_H_
