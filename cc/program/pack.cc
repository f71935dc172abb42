#include "cc/program/pack.h"

#include <cstdint>
#include <cstring>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cc/base/custom_call.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/types.h"
#include "xla/ffi/api/c_api.h"

namespace tf_tpu_ext {
namespace {

int64_t BytesOf(const XLA_FFI_Buffer& buffer) {
  return ShapeOf(buffer).num_elements() * tensorflow::DataTypeSize(ToTensorFlowType(buffer.dtype));
}

// Calls `copy` with each of the parts and its place in the whole.
template <typename Copy>
absl::Status CopyParts(void* const* parts, int64_t num_parts, const void* whole, Copy copy) {
  const auto& all = *static_cast<const XLA_FFI_Buffer*>(whole);
  char* place = static_cast<char*>(all.data);
  char* const end = place + BytesOf(all);
  for (int64_t i = 0; i < num_parts; ++i) {
    const auto& part = *static_cast<const XLA_FFI_Buffer*>(parts[i]);
    const int64_t bytes = BytesOf(part);
    if (bytes > end - place) break;
    copy(part.data, place, bytes);
    place += bytes;
    if (i + 1 == num_parts && place == end) return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat("The ", num_parts, " parts of a packed array of ",
                                          BytesOf(all),
                                          " bytes have another size. Report this with the "
                                          "program."));
}

class Pack : public CustomCall {
 public:
  absl::Status Execute(XLA_FFI_CallFrame* frame) const override {
    return CopyParts(frame->args.args, frame->args.size, frame->rets.rets[0],
                     [](void* part, void* place, int64_t bytes) { memcpy(place, part, bytes); });
  }
};

class Unpack : public CustomCall {
 public:
  absl::Status Execute(XLA_FFI_CallFrame* frame) const override {
    return CopyParts(frame->rets.rets, frame->rets.size, frame->args.args[0],
                     [](void* part, void* place, int64_t bytes) { memcpy(part, place, bytes); });
  }
};

template <typename Call>
absl::StatusOr<std::unique_ptr<CustomCall>> MakeCopies(const CallAttributes& /*attributes*/) {
  return std::make_unique<Call>();
}

[[maybe_unused]] const bool kPackRegistered = RegisterCustomCall<MakeCopies<Pack>>(kPackTarget);
[[maybe_unused]] const bool kUnpackRegistered =
    RegisterCustomCall<MakeCopies<Unpack>>(kUnpackTarget);

}  // namespace
}  // namespace tf_tpu_ext
