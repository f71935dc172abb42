// The configuration of a custom call: named strings and integers.
//
// As text it is the backend_config of an HLO instruction, `{op = "relu", work = 3 : i64}`: XLA
// reads that as an MLIR dictionary and hands it to the call's handler as XLA_FFI_Attrs. The structs
// of cc/program/*_call.h are read from it and written to it, and nothing else looks inside it.
#ifndef TF_TPU_EXT_CC_BASE_CALL_ATTRIBUTES_H_
#define TF_TPU_EXT_CC_BASE_CALL_ATTRIBUTES_H_

#include <cstdint>
#include <map>
#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "xla/ffi/api/c_api.h"

namespace tf_tpu_ext {

// An attribute that most calls have: the name of their TensorFlow op, as errors show it.
inline constexpr char kOpAttribute[] = "op";

class CallAttributes {
 public:
  CallAttributes() = default;
  // The attributes that a handler received. Those of other types are left out.
  explicit CallAttributes(const XLA_FFI_Attrs& attributes);

  // Reads what ToText wrote.
  static absl::StatusOr<CallAttributes> Parse(absl::string_view text);
  std::string ToText() const;

  void SetString(absl::string_view name, absl::string_view value);
  void SetInteger(absl::string_view name, int64_t value);

  bool Has(absl::string_view name) const;
  // Return an error if there is no attribute of that name and type.
  absl::StatusOr<std::string> GetString(absl::string_view name) const;
  absl::StatusOr<int64_t> GetInteger(absl::string_view name) const;
  // For an integer that counts or numbers something: also an error if it is negative or too large.
  absl::StatusOr<int> GetCount(absl::string_view name) const;

 private:
  absl::Status Missing(absl::string_view type, absl::string_view name) const;

  // Sorted by name, so that equal attributes have equal texts.
  std::map<std::string, std::variant<std::string, int64_t>, std::less<>> values_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_CALL_ATTRIBUTES_H_
