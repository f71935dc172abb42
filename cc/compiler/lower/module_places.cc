#include "cc/compiler/lower/module_places.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace tf_tpu_ext {
namespace {

// Takes a quoted string. Quotes, backslashes and unprintable characters are `\` and two digits.
std::string TakeString(absl::string_view* text) {
  std::string taken;
  text->remove_prefix(1);
  while (!text->empty() && text->front() != '"') {
    if (text->front() != '\\' || text->size() < 3) {
      taken += text->front();
      text->remove_prefix(1);
    } else if ((*text)[1] == '\\') {
      taken += '\\';
      text->remove_prefix(2);
    } else {
      int byte = 0;
      if (absl::SimpleHexAtoi(text->substr(1, 2), &byte)) taken += static_cast<char>(byte);
      text->remove_prefix(3);
    }
  }
  absl::ConsumePrefix(text, "\"");
  return taken;
}

int TakeNumber(absl::string_view* text) {
  size_t digits = 0;
  while (digits < text->size() && absl::ascii_isdigit((*text)[digits])) ++digits;
  int number = 0;
  if (!absl::SimpleAtoi(text->substr(0, digits), &number)) number = 0;
  text->remove_prefix(digits);
  return number;
}

}  // namespace

ModulePlace ModulePlaces::At(absl::string_view location) { return Take(&location); }

ModulePlace ModulePlaces::Take(absl::string_view* text) {
  if (const absl::string_view alias = ModuleLocations::AliasAt(*text); !alias.empty()) {
    text->remove_prefix(alias.size());
    // No location should contain itself. If one does, the recursion ends here.
    const auto [known, added] = known_.try_emplace(alias);
    if (!added) return known->second;
    return known_[alias] = At(locations_.Named(alias));
  }
  if (absl::StartsWith(*text, "\"")) return TakeNamed(text);
  if (absl::ConsumePrefix(text, "callsite(")) return TakeCall(text);
  if (absl::ConsumePrefix(text, "fused")) return TakeFused(text);
  absl::ConsumePrefix(text, "unknown");
  return {};
}

// "name", "name"(child), or "file":line:column.
ModulePlace ModulePlaces::TakeNamed(absl::string_view* text) {
  ModulePlace place;
  std::string name = TakeString(text);
  if (absl::ConsumePrefix(text, ":")) {
    const int line = TakeNumber(text);
    if (absl::ConsumePrefix(text, ":")) TakeNumber(text);
    if (!IsLibraryFile(name)) place.line = {std::move(name), line};
    return place;
  }
  if (absl::ConsumePrefix(text, "(")) {
    place.line = Take(text).line;
    absl::ConsumePrefix(text, ")");
  }
  // "type:" is not a name, and the name of a function may follow.
  if (!absl::EndsWith(name, ":")) place.name = name.substr(0, name.find('@'));
  return place;
}

// callsite(inner at outer) for ops of inlined functions, callsite(outer at inner) for stack frames.
ModulePlace ModulePlaces::TakeCall(absl::string_view* text) {
  ModulePlace first = Take(text);
  absl::ConsumePrefix(text, " at ");
  const ModulePlace second = Take(text);
  absl::ConsumePrefix(text, ")");
  const bool second_is_inner = !first.of_op;
  if (second.line.known() && (second_is_inner || !first.line.known())) first.line = second.line;
  return first;
}

ModulePlace ModulePlaces::TakeFused(absl::string_view* text) {
  ModulePlace place;
  place.of_op = true;
  const size_t start = text->find('[');
  text->remove_prefix(start == text->npos ? text->size() : start + 1);
  while (!text->empty() && !absl::ConsumePrefix(text, "]")) {
    const size_t before = text->size();
    ModulePlace part = Take(text);
    if (!part.name.empty()) {
      absl::StrAppend(&place.name, place.name.empty() ? "" : ";", part.name);
    }
    if (!place.line.known()) place.line = std::move(part.line);
    absl::ConsumePrefix(text, ", ");
    if (text->size() == before) break;  // not a location
  }
  return place;
}

}  // namespace tf_tpu_ext
