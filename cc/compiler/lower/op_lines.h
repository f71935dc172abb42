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

// By the names that XLA's metadata give the ops.
class OpLines {
 public:
  OpLines() = default;

  // The lines of a function, and of all functions that it calls.
  OpLines(const std::string& function, const tensorflow::FunctionLibraryDefinition& library);

  // The lines of the ops in the text of a module. Ops that have the same name and other lines get
  // names of their own in the text.
  static OpLines OfModule(std::string* module);

  // Unknown if there is no such op, or no line is known for it.
  SourceLine Find(absl::string_view op) const;

 private:
  struct Function {
    std::map<std::string, SourceLine, std::less<>> ops;
    // Ops that are calls, and what they call: its ops' names begin with the call's.
    std::map<std::string, std::string, std::less<>> calls;
    // Bodies and branches: the names of their ops stand for themselves.
    std::vector<std::string> bodies;
  };

  void Read(const std::string& name, const tensorflow::FunctionLibraryDefinition& library);
  SourceLine FindIn(const std::string& name, absl::string_view op, int depth) const;

  std::string entry_;
  std::map<std::string, Function> functions_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_LOWER_OP_LINES_H_
