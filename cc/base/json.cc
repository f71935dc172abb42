#include "cc/base/json.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace tf_tpu_ext {
namespace {

std::string Quoted(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&quoted, "\\u%04x", c);
    } else {
      quoted += c;
    }
  }
  quoted += '"';
  return quoted;
}

}  // namespace

JsonObject& JsonObject::String(absl::string_view name, absl::string_view value) {
  return Member(name, Quoted(value));
}

JsonObject& JsonObject::Integer(absl::string_view name, int64_t value) {
  return Member(name, absl::StrCat(value));
}

JsonObject& JsonObject::Integers(absl::string_view name, absl::Span<const int> values) {
  return Member(name, absl::StrCat("[", absl::StrJoin(values, ","), "]"));
}

JsonObject& JsonObject::Number(absl::string_view name, double value) {
  return Member(name, std::isfinite(value) ? absl::StrFormat("%.17g", value) : "null");
}

JsonObject& JsonObject::Bool(absl::string_view name, bool value) {
  return Member(name, value ? "true" : "false");
}

JsonObject& JsonObject::Null(absl::string_view name) { return Member(name, "null"); }

JsonObject& JsonObject::Object(absl::string_view name, const JsonObject& value) {
  return Member(name, value.Text());
}

JsonObject& JsonObject::Objects(absl::string_view name, const std::vector<JsonObject>& values) {
  return Member(name, JsonArray(values));
}

std::string JsonObject::Text() const { return absl::StrCat("{", members_, "}"); }

JsonObject& JsonObject::Member(absl::string_view name, absl::string_view json) {
  absl::StrAppend(&members_, members_.empty() ? "" : ",", Quoted(name), ":", json);
  return *this;
}

std::string JsonArray(const std::vector<JsonObject>& objects) {
  const auto append = [](std::string* out, const JsonObject& object) {
    absl::StrAppend(out, object.Text());
  };
  return absl::StrCat("[", absl::StrJoin(objects, ",", append), "]");
}

}  // namespace tf_tpu_ext
