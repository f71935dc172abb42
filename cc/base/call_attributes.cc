#include "cc/base/call_attributes.h"

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

constexpr absl::string_view kIntegerType = " : i64";

// Quotes as MLIR does: a backslash before quotes and backslashes, and before the two hex digits of
// a character that can't be printed.
std::string QuotedForMlir(absl::string_view text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      quoted.push_back('\\');
      quoted.push_back(c);
    } else if (absl::ascii_isprint(static_cast<unsigned char>(c))) {
      quoted.push_back(c);
    } else {
      absl::StrAppendFormat(&quoted, "\\%02X", static_cast<unsigned char>(c));
    }
  }
  return quoted + "\"";
}

// Removes a quoted string from the front of `text`, which starts after the opening quote.
bool ConsumeQuoted(absl::string_view* text, std::string* value) {
  while (!text->empty()) {
    const char c = text->front();
    text->remove_prefix(1);
    if (c == '"') return true;
    if (c != '\\') {
      value->push_back(c);
    } else if (absl::ConsumePrefix(text, "\"")) {
      value->push_back('"');
    } else if (absl::ConsumePrefix(text, "\\")) {
      value->push_back('\\');
    } else {
      if (text->size() < 2 || !absl::c_all_of(text->substr(0, 2), absl::ascii_isxdigit))
        return false;
      uint32_t byte;
      if (!absl::SimpleHexAtoi(text->substr(0, 2), &byte)) return false;
      value->push_back(static_cast<char>(byte));
      text->remove_prefix(2);
    }
  }
  return false;
}

// Removes an integer such as `3 : i64` from the front of `text`.
bool ConsumeInteger(absl::string_view* text, int64_t* value) {
  const size_t end = text->find(kIntegerType);
  if (end == absl::string_view::npos || !absl::SimpleAtoi(text->substr(0, end), value)) {
    return false;
  }
  text->remove_prefix(end + kIntegerType.size());
  return true;
}

}  // namespace

CallAttributes::CallAttributes(const XLA_FFI_Attrs& attributes) {
  for (int64_t i = 0; i < attributes.size; ++i) {
    const absl::string_view name(attributes.names[i]->ptr, attributes.names[i]->len);
    if (attributes.types[i] == XLA_FFI_AttrType_STRING) {
      const auto* value = static_cast<const XLA_FFI_ByteSpan*>(attributes.attrs[i]);
      SetString(name, absl::string_view(value->ptr, value->len));
    } else if (attributes.types[i] == XLA_FFI_AttrType_SCALAR) {
      const auto* value = static_cast<const XLA_FFI_Scalar*>(attributes.attrs[i]);
      if (value->dtype == XLA_FFI_DataType_S64) {
        SetInteger(name, *static_cast<const int64_t*>(value->value));
      }
    }
  }
}

absl::StatusOr<CallAttributes> CallAttributes::Parse(absl::string_view text) {
  absl::Status malformed = absl::InternalError(
      absl::StrCat("Expected the configuration of a custom call; got '", text, "'."));
  CallAttributes attributes;
  if (!absl::ConsumePrefix(&text, "{") || !absl::ConsumeSuffix(&text, "}")) return malformed;
  while (!text.empty()) {
    const size_t equals = text.find(" = ");
    if (equals == absl::string_view::npos) return malformed;
    const absl::string_view name = text.substr(0, equals);
    text.remove_prefix(equals + 3);
    if (absl::ConsumePrefix(&text, "\"")) {
      std::string value;
      if (!ConsumeQuoted(&text, &value)) return malformed;
      attributes.SetString(name, value);
    } else {
      int64_t value = 0;
      if (!ConsumeInteger(&text, &value)) return malformed;
      attributes.SetInteger(name, value);
    }
    if (!text.empty() && !absl::ConsumePrefix(&text, ", ")) return malformed;
  }
  return attributes;
}

std::string CallAttributes::ToText() const {
  std::vector<std::string> entries;
  for (const auto& [name, value] : values_) {
    const auto* text = std::get_if<std::string>(&value);
    entries.push_back(text != nullptr
                          ? absl::StrCat(name, " = ", QuotedForMlir(*text))
                          : absl::StrCat(name, " = ", std::get<int64_t>(value), kIntegerType));
  }
  return absl::StrCat("{", absl::StrJoin(entries, ", "), "}");
}

void CallAttributes::SetString(absl::string_view name, absl::string_view value) {
  values_.insert_or_assign(std::string(name), std::string(value));
}

void CallAttributes::SetInteger(absl::string_view name, int64_t value) {
  values_.insert_or_assign(std::string(name), value);
}

bool CallAttributes::Has(absl::string_view name) const {
  return values_.find(name) != values_.end();
}

absl::StatusOr<std::string> CallAttributes::GetString(absl::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) return Missing("text", name);
  const auto* value = std::get_if<std::string>(&found->second);
  if (value == nullptr) return Missing("text", name);
  return *value;
}

absl::StatusOr<int64_t> CallAttributes::GetInteger(absl::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) return Missing("integer", name);
  const auto* value = std::get_if<int64_t>(&found->second);
  if (value == nullptr) return Missing("integer", name);
  return *value;
}

absl::StatusOr<int> CallAttributes::GetCount(absl::string_view name) const {
  TF_ASSIGN_OR_RETURN(const int64_t value, GetInteger(name));
  if (value >= 0 && value <= std::numeric_limits<int>::max()) return static_cast<int>(value);
  return absl::InternalError(absl::StrCat("The configuration of a custom call has ", value,
                                          " as its count '", name, "': ", ToText()));
}

absl::Status CallAttributes::Missing(absl::string_view type, absl::string_view name) const {
  return absl::InternalError(absl::StrCat("The configuration of a custom call has no ", type, " '",
                                          name, "': ", ToText()));
}

}  // namespace tf_tpu_ext
