// Writes JSON: what the C interface hands to Python.
#ifndef TF_TPU_EXT_CC_BASE_JSON_H_
#define TF_TPU_EXT_CC_BASE_JSON_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tf_tpu_ext {

// A JSON object, written member by member in the order of the calls:
//
//   JsonObject().String("name", name).Integer("cores", 8).Text()
//
// There is a function for each type of value, because overloads would take a `const char*` for a
// bool. Each name must be given only once.
class JsonObject {
 public:
  // The bytes, which should be UTF-8, pass unchanged except for what JSON requires to be escaped.
  JsonObject& String(absl::string_view name, absl::string_view value);
  JsonObject& Integer(absl::string_view name, int64_t value);
  JsonObject& Integers(absl::string_view name, absl::Span<const int> values);
  // With as many digits as it takes to read the same number back. Infinities and NaN, which JSON
  // lacks, become null.
  JsonObject& Number(absl::string_view name, double value);
  JsonObject& Bool(absl::string_view name, bool value);
  JsonObject& Null(absl::string_view name);
  JsonObject& Object(absl::string_view name, const JsonObject& value);
  JsonObject& Objects(absl::string_view name, const std::vector<JsonObject>& values);

  std::string Text() const;

 private:
  JsonObject& Member(absl::string_view name, absl::string_view json);

  std::string members_;
};

// A JSON array of the objects.
std::string JsonArray(const std::vector<JsonObject>& objects);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_JSON_H_
