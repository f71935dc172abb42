#include "cc/compiler/lower/module_calls.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace tf_tpu_ext {
namespace {

using Calls = absl::btree_map<std::string, absl::btree_set<std::string>>;

// The symbols in a line of MLIR text, in order. Strings may contain anything and are skipped. A
// symbol with unusual characters is itself quoted: @"a b".
std::vector<std::string> SymbolsOf(absl::string_view line) {
  std::vector<std::string> symbols;
  for (size_t i = 0; i < line.size(); ++i) {
    const bool is_symbol = line[i] == '@';
    if (is_symbol) ++i;
    if (i < line.size() && line[i] == '"') {
      const size_t begin = ++i;
      while (i < line.size() && line[i] != '"') i += line[i] == '\\' ? 2 : 1;
      if (is_symbol) symbols.emplace_back(line.substr(begin, i - begin));
    } else if (is_symbol) {
      const size_t begin = i;
      while (i < line.size() && (absl::ascii_isalnum(line[i]) || line[i] == '_' || line[i] == '$' ||
                                 line[i] == '.' || line[i] == '-')) {
        ++i;
      }
      symbols.emplace_back(line.substr(begin, i - begin));
      --i;
    }
  }
  return symbols;
}

Calls CallsOf(absl::string_view module) {
  Calls calls;
  std::string function;
  for (absl::string_view line : absl::StrSplit(module, '\n')) {
    std::vector<std::string> symbols = SymbolsOf(line);
    if (absl::StartsWith(absl::StripLeadingAsciiWhitespace(line), "func.func ") &&
        !symbols.empty()) {
      function = std::move(symbols.front());
      symbols.erase(symbols.begin());
      calls[function];
    }
    if (!function.empty()) calls[function].insert(symbols.begin(), symbols.end());
  }
  return calls;
}

// Follows the calls of a function. `path` holds its callers.
absl::Status Visit(const Calls& calls, const std::string& function, std::vector<std::string>* path,
                   absl::btree_set<std::string>* done) {
  const auto found = calls.find(function);
  if (found == calls.end() || done->contains(function)) return absl::OkStatus();
  const bool recursive = absl::c_linear_search(*path, function);
  path->push_back(function);
  if (recursive) {
    return absl::InvalidArgumentError(absl::StrCat(
        "A function of the TPU computation calls itself: ", absl::StrJoin(*path, " -> "),
        ". XLA has no recursion; use tf.while_loop."));
  }
  for (const std::string& callee : found->second) {
    if (absl::Status status = Visit(calls, callee, path, done); !status.ok()) return status;
  }
  path->pop_back();
  done->insert(function);
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckNoRecursion(absl::string_view module) {
  const Calls calls = CallsOf(module);
  absl::btree_set<std::string> done;
  for (const auto& [function, callees] : calls) {
    std::vector<std::string> path;
    if (absl::Status status = Visit(calls, function, &path, &done); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace tf_tpu_ext
