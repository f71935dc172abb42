// What a program does that a TPU is slow at.
#ifndef TF_TPU_EXT_CC_COMPILER_BUILD_PROGRAM_NOTES_H_
#define TF_TPU_EXT_CC_COMPILER_BUILD_PROGRAM_NOTES_H_

#include <string>
#include <vector>

#include "cc/compiler/lower/op_lines.h"
#include "cc/program/compilation_record.h"
#include "xla/hlo/ir/hlo_module.h"

namespace tf_tpu_ext {

// Values of emulated types and of dynamic sizes, calls of the host in loops, and products that
// leave most of a matrix unit idle, each kind and type once. The module, for this machine or for a
// target, must not be optimized yet.
std::vector<ProgramNote> NotesOf(const xla::HloModule& module, const OpLines& lines);

// The TensorFlow op of the first instruction that is of one; empty if there is none.
std::string FirstOp(const xla::HloModule& module);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_BUILD_PROGRAM_NOTES_H_
