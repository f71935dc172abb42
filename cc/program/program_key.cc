#include "cc/program/program_key.h"

#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "tensorflow/core/framework/allocation_description.pb.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tstring;

// Precedes the name of a program that the hosts of a pod share.
constexpr absl::string_view kInPod = "pod:";

// The strings of a key, and the object that it keeps alive.
class KeyBuffer : public tensorflow::TensorBuffer {
 public:
  KeyBuffer(absl::string_view first, absl::string_view second, absl::string_view third,
            std::shared_ptr<const void> kept)
      : TensorBuffer(strings_),
        strings_{tstring(first), tstring(second), tstring(third)},
        kept_(std::move(kept)) {}

  size_t size() const override { return sizeof(strings_); }
  TensorBuffer* root_buffer() override { return this; }
  void FillAllocationDescription(tensorflow::AllocationDescription* description) const override {
    description->set_requested_bytes(static_cast<int64_t>(size()));
  }

 private:
  // Aligned as Eigen requires.
  alignas(EIGEN_MAX_ALIGN_BYTES) tstring strings_[kProgramKeySize];
  const std::shared_ptr<const void> kept_;
};

Tensor MakeKey(absl::string_view first, absl::string_view second, absl::string_view third,
               std::shared_ptr<const void> kept) {
  const tensorflow::core::RefCountPtr<KeyBuffer> buffer(
      new KeyBuffer(first, second, third, std::move(kept)));
  return Tensor(tensorflow::DT_STRING, TensorShape({kProgramKeySize}), buffer.get());
}

}  // namespace

Tensor EncodeProgramKey(const ProgramKey& key, std::shared_ptr<const void> program) {
  const std::string name = key.pod_program.empty() ? absl::StrCat(key.program_id)
                                                   : absl::StrCat(kInPod, key.pod_program);
  return MakeKey(name, absl::StrCat(key.launch_id), "", std::move(program));
}

Tensor EncodeCompilationFailure(const absl::Status& status) {
  return MakeKey("", absl::StrCat(status.raw_code()), status.message(), nullptr);
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
    absl::string_view name = strings(0);
    const bool is_in_pod = absl::ConsumePrefix(&name, kInPod);
    if (is_in_pod) key.pod_program = std::string(name);
    if ((is_in_pod || absl::SimpleAtoi(name, &key.program_id)) &&
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
