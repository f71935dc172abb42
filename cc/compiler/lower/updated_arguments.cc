#include "cc/compiler/lower/updated_arguments.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"

namespace tf_tpu_ext {
namespace {

constexpr absl::string_view kEntry = "@main(";
constexpr absl::string_view kArgument = "%arg";
constexpr absl::string_view kAliasingOutput = "tf.aliasing_output = ";

// Removes a string literal from the front of the text.
void SkipString(absl::string_view* text) {
  text->remove_prefix(1);
  while (!text->empty() && text->front() != '"') {
    text->remove_prefix(text->front() == '\\' && text->size() > 1 ? 2 : 1);
  }
  if (!text->empty()) text->remove_prefix(1);
}

bool TakeNumber(absl::string_view* text, int* number) {
  size_t digits = 0;
  while (digits < text->size() && absl::ascii_isdigit((*text)[digits])) ++digits;
  const bool taken = absl::SimpleAtoi(text->substr(0, digits), number);
  text->remove_prefix(digits);
  return taken;
}

}  // namespace

std::vector<std::pair<ArgumentNumber, OutputNumber>> UpdatedArguments(absl::string_view module) {
  std::vector<std::pair<ArgumentNumber, OutputNumber>> updated;
  const size_t entry = module.find(kEntry);
  if (entry == absl::string_view::npos) return updated;
  absl::string_view text = module.substr(entry + kEntry.size());
  int argument = -1;
  // Finds the parenthesis that closes the argument list. Types and attributes have their own.
  for (int depth = 1; depth > 0 && !text.empty();) {
    if (text.front() == '"') {
      SkipString(&text);
    } else if (absl::ConsumePrefix(&text, kArgument)) {
      if (!TakeNumber(&text, &argument)) return updated;
    } else if (absl::ConsumePrefix(&text, kAliasingOutput)) {
      int output = -1;
      if (argument < 0 || !TakeNumber(&text, &output)) return updated;
      updated.emplace_back(argument, output);
    } else {
      if (text.front() == '(') ++depth;
      if (text.front() == ')') --depth;
      text.remove_prefix(1);
    }
  }
  return updated;
}

}  // namespace tf_tpu_ext
