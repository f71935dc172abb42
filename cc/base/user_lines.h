// Which line of the user's Python made an op.
#ifndef TF_TPU_EXT_CC_BASE_USER_LINES_H_
#define TF_TPU_EXT_CC_BASE_USER_LINES_H_

#include <string>

#include "absl/strings/string_view.h"
#include "tensorflow/core/graph/graph_debug_info_builder.h"

namespace tf_tpu_ext {

struct SourceLine {
  std::string file;
  int line = 0;

  bool known() const { return !file.empty(); }
  // As `file:line`; empty if unknown.
  std::string Text() const;
};

// Parses the result of SourceLine::Text; unknown if the text is not one.
SourceLine ParseSourceLine(absl::string_view text);

// The folder of our Python package, with a slash at the end, which the library's path names: it
// lies there or, in a wheel for several versions of TensorFlow, in a folder below. Empty if there
// is none.
std::string PackageFolder(absl::string_view library);

// Whether the file is not the user's: a file of TensorFlow, Keras or this package, or no file at
// all.
bool IsLibraryFile(absl::string_view file);

// The innermost line of the user's code in a stack trace, which may be null; unknown if there is
// none.
SourceLine UserLine(const tensorflow::AbstractStackTrace* trace);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_USER_LINES_H_
