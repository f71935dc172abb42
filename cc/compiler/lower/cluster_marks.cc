#include "cc/compiler/lower/cluster_marks.h"

#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "cc/compiler/lower/module_locations.h"
#include "cc/ops/op_names.h"

namespace tf_tpu_ext {
namespace {

constexpr absl::string_view kHostComputation = "\"tf._XlaHostComputeMlir\"(";
// Quotes inside strings are escaped, so this matches only the start of an attribute.
constexpr absl::string_view kSendKey = "send_key = \"";

// The name that starts at `start`, up to the first character that names don't have.
absl::string_view NameAt(absl::string_view text, size_t start, size_t prefix) {
  size_t end = start + prefix;
  while (end < text.size() && (absl::ascii_isalnum(text[end]) || text[end] == '_')) ++end;
  return text.substr(start, end - start);
}

// The mark in a location or in one of its parts. Empty if there is none.
absl::string_view MarkOf(absl::string_view location, const ModuleLocations& locations) {
  std::vector<absl::string_view> open = {location};
  absl::flat_hash_set<absl::string_view> seen;
  while (!open.empty()) {
    const absl::string_view text = open.back();
    open.pop_back();
    if (const size_t mark = text.find(kClusterMark); mark != text.npos) {
      return NameAt(text, mark, absl::string_view(kClusterMark).size());
    }
    for (size_t at = text.find('#'); at != text.npos; at = text.find('#', at + 1)) {
      const absl::string_view alias = ModuleLocations::AliasAt(text.substr(at));
      if (seen.insert(alias).second) open.push_back(locations.Named(alias));
    }
  }
  return "";
}

}  // namespace

std::map<std::string, std::string> ClusterMarks(absl::string_view module) {
  std::map<std::string, std::string> marks;
  if (!absl::StrContains(module, kClusterMark)) return marks;
  const ModuleLocations locations(module);
  for (absl::string_view line : locations.ops()) {
    if (!absl::StrContains(line, kHostComputation)) continue;
    const size_t key = line.find(kSendKey);
    if (key == line.npos) continue;
    const absl::string_view channel = line.substr(key + kSendKey.size());
    const absl::string_view mark = MarkOf(ModuleLocations::OfOp(line), locations);
    if (!mark.empty()) marks.emplace(channel.substr(0, channel.find('"')), mark);
  }
  return marks;
}

}  // namespace tf_tpu_ext
