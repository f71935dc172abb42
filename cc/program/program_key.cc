#include "cc/program/program_key.h"

#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace tf_tpu_ext {

using tensorflow::Tensor;
using tensorflow::tstring;

void EncodeProgramKey(const ProgramKey& key, Tensor* tensor) {
  auto strings = tensor->flat<tstring>();
  strings(0) = absl::StrCat(key.program_id);
  strings(1) = absl::StrCat(key.launch_id);
  strings(2) = "";
}

void EncodeCompilationFailure(const absl::Status& status, Tensor* tensor) {
  auto strings = tensor->flat<tstring>();
  strings(0) = "";
  strings(1) = absl::StrCat(status.raw_code());
  strings(2) = std::string(status.message());
}

absl::StatusOr<ProgramKey> DecodeProgramKey(const Tensor& tensor) {
  if (tensor.dtype() == tensorflow::DT_STRING && tensor.NumElements() == kProgramKeySize) {
    auto strings = tensor.flat<tstring>();
    ProgramKey key;
    int code;
    if (strings(0).empty() && absl::SimpleAtoi(absl::string_view(strings(1)), &code) && code != 0) {
      return absl::Status(static_cast<absl::StatusCode>(code),
                          absl::StrCat("Compilation failure: ", absl::string_view(strings(2))));
    }
    int64_t launch_id;
    if (absl::SimpleAtoi(absl::string_view(strings(0)), &key.program_id) &&
        absl::SimpleAtoi(absl::string_view(strings(1)), &launch_id)) {
      key.launch_id = LaunchId(launch_id);
      return key;
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "A TPU program key is the tensor of ", kProgramKeySize,
      " strings that _TPUCompileMlir returns. Received: ", tensor.DebugString(kProgramKeySize),
      ". If the compilation failed, its own error says why."));
}

}  // namespace tf_tpu_ext
