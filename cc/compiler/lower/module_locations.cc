#include "cc/compiler/lower/module_locations.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace tf_tpu_ext {
namespace {

constexpr absl::string_view kAlias = "#loc";
constexpr absl::string_view kDefinition = " = loc(";
constexpr absl::string_view kLocation = " loc(";

}  // namespace

ModuleLocations::ModuleLocations(absl::string_view module) {
  for (absl::string_view line : absl::StrSplit(module, '\n')) {
    const absl::string_view alias = AliasAt(line);
    if (alias.empty()) {
      ops_.push_back(line);
    } else if (line = line.substr(alias.size());
               absl::ConsumePrefix(&line, kDefinition) && absl::ConsumeSuffix(&line, ")")) {
      aliases_[alias] = line;
    }
  }
}

absl::string_view ModuleLocations::Named(absl::string_view alias) const {
  const auto found = aliases_.find(alias);
  return found == aliases_.end() ? absl::string_view() : found->second;
}

absl::string_view ModuleLocations::AliasAt(absl::string_view text) {
  if (!absl::StartsWith(text, kAlias)) return "";
  size_t end = kAlias.size();
  while (end < text.size() && absl::ascii_isdigit(text[end])) ++end;
  return text.substr(0, end);
}

absl::string_view ModuleLocations::OfOp(absl::string_view line) {
  const size_t start = line.rfind(kLocation);
  if (start == line.npos) return "";
  line = line.substr(start + kLocation.size());
  return absl::ConsumeSuffix(&line, ")") ? line : "";
}

}  // namespace tf_tpu_ext
