#include "cc/kernels/compilation_status.h"

#include <cstdint>

namespace tf_tpu_ext {
namespace {

// Protobuf tags: field number << 3 | wire type (0 for a varint, 2 for a length and bytes).
constexpr uint64_t kCodeTag = 1 << 3 | 0;
constexpr uint64_t kMessageTag = 2 << 3 | 2;

void AppendVarint(uint64_t value, std::string* out) {
  while (value >= 0x80) {
    out->push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out->push_back(static_cast<char>(value));
}

bool ReadVarint(absl::string_view* in, uint64_t* value) {
  *value = 0;
  for (int shift = 0; shift < 64 && !in->empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(in->front());
    in->remove_prefix(1);
    *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

}  // namespace

std::string SerializeCompilationStatus(const absl::Status& status) {
  std::string out;
  if (status.ok()) return out;
  AppendVarint(kCodeTag, &out);
  AppendVarint(static_cast<uint64_t>(status.raw_code()), &out);
  AppendVarint(kMessageTag, &out);
  AppendVarint(status.message().size(), &out);
  out.append(status.message().data(), status.message().size());
  return out;
}

absl::Status ParseCompilationStatus(absl::string_view serialized) {
  absl::Status malformed = absl::InvalidArgumentError(
      "Expected the compilation_status output of _TPUCompileMlir, a serialized "
      "CompilationResultProto; the bytes received are not one.");
  uint64_t code = 0;
  absl::string_view message;
  while (!serialized.empty()) {
    uint64_t tag, value;
    if (!ReadVarint(&serialized, &tag) || !ReadVarint(&serialized, &value)) return malformed;
    if (tag == kCodeTag) {
      code = value;
    } else if (tag == kMessageTag && value <= serialized.size()) {
      message = serialized.substr(0, value);
      serialized.remove_prefix(value);
    } else {
      return malformed;
    }
  }
  return absl::Status(static_cast<absl::StatusCode>(code), message);
}

}  // namespace tf_tpu_ext
