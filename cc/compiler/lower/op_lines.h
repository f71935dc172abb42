// Which Python lines made the ops of a program.
#ifndef TF_TPU_EXT_CC_COMPILER_LOWER_OP_LINES_H_
#define TF_TPU_EXT_CC_COMPILER_LOWER_OP_LINES_H_

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "cc/base/user_lines.h"
#include "tensorflow/core/framework/function.h"

namespace tf_tpu_ext {

// Indexed by the op names in XLA's metadata.
class OpLines {
 public:
  OpLines() = default;

  // The lines of a function and of all functions that it calls.
  OpLines(const std::string& function, const tensorflow::FunctionLibraryDefinition& library);

  // The lines of the ops in the text of a module. If ops with different lines have the same name,
  // they get unique names in the text.
  static OpLines OfModule(std::string* module);

  // Unknown if there is no such op, or its line is not known.
  SourceLine Find(absl::string_view op) const;

 private:
  struct Function {
    std::map<std::string, SourceLine, std::less<>> ops;
    // Ops that are calls, and the functions that they call. Names of ops in these functions start
    // with the call's name.
    std::map<std::string, std::string, std::less<>> calls;
    // Loop bodies and branches, whose ops' names have no such prefix.
    std::vector<std::string> bodies;
  };

  void Read(const std::string& name, const tensorflow::FunctionLibraryDefinition& library);
  SourceLine FindIn(const std::string& name, absl::string_view op, int depth) const;

  std::string entry_;
  std::map<std::string, Function> functions_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_LOWER_OP_LINES_H_
