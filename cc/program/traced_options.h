// The options that a program was traced with, which its graph carries.
#ifndef TF_TPU_EXT_CC_PROGRAM_TRACED_OPTIONS_H_
#define TF_TPU_EXT_CC_PROGRAM_TRACED_OPTIONS_H_

#include <string>

#include "absl/status/status.h"
#include "cc/base/program_options.h"
#include "tensorflow/core/framework/function.pb.h"
#include "tensorflow/core/protobuf/tpu/compile_metadata.pb.h"

namespace tf_tpu_ext {

// The attribute of TPUReplicateMetadata that holds a serialized TPUCompileOptions, which the bridge
// copies into the metadata of the compile op. Python writes the text of ProgramOptions into a field
// that TensorFlow does not know and therefore keeps. A function that is compiled on its own carries
// the attribute on a NoOp, with an underscore in front of its name.
inline constexpr char kCompileOptions[] = "tpu_compile_options_proto";
inline constexpr char kCompileOptionsMark[] = "_tpu_compile_options_proto";
inline constexpr int kProgramOptionsField = 7100;

// Sets the options that the program was traced with, and leaves the others unchanged.
absl::Status ApplyTracedOptions(const tensorflow::tpu::TPUCompileOptions& traced,
                                ProgramOptions* options);
absl::Status ApplyTracedOptions(const std::string& serialized, ProgramOptions* options);

// What a function that is compiled on its own was traced with; empty if nothing.
std::string CompileOptionsOf(const tensorflow::FunctionDef& function);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROGRAM_TRACED_OPTIONS_H_
