#include "cc/compiler/lower/cluster_marks.h"

#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "cc/ops/op_names.h"

namespace tf_tpu_ext {
namespace {

constexpr absl::string_view kHostComputation = "\"tf._XlaHostComputeMlir\"(";
// Quotes within a string are escaped, so these begin an attribute.
constexpr absl::string_view kSendKey = "send_key = \"";
constexpr absl::string_view kLocation = " loc(";
constexpr absl::string_view kAlias = "#loc";

// Begins at `start`, and goes on for as long as names do.
absl::string_view NameAt(absl::string_view text, size_t start, size_t prefix) {
  size_t end = start + prefix;
  while (end < text.size() && (absl::ascii_isalnum(text[end]) || text[end] == '_')) ++end;
  return text.substr(start, end - start);
}

class Locations {
 public:
  // Learns the names that the module gives to locations.
  void Read(absl::string_view line) {
    if (absl::StartsWith(line, kAlias)) aliases_[NameAt(line, 0, kAlias.size())] = line;
  }

  // The mark in a location, or in one that it is made of; empty if there is none.
  absl::string_view MarkOf(absl::string_view location) const {
    std::vector<absl::string_view> open = {location};
    absl::flat_hash_set<absl::string_view> seen;
    while (!open.empty()) {
      const absl::string_view text = open.back();
      open.pop_back();
      if (const size_t mark = text.find(kClusterMark); mark != text.npos) {
        return NameAt(text, mark, absl::string_view(kClusterMark).size());
      }
      for (size_t at = text.find(kAlias); at != text.npos; at = text.find(kAlias, at + 1)) {
        const absl::string_view alias = NameAt(text, at, kAlias.size());
        const auto found = aliases_.find(alias);
        if (found != aliases_.end() && seen.insert(alias).second) open.push_back(found->second);
      }
    }
    return "";
  }

 private:
  absl::flat_hash_map<absl::string_view, absl::string_view> aliases_;
};

}  // namespace

std::map<std::string, std::string> ClusterMarks(absl::string_view module) {
  std::map<std::string, std::string> marks;
  if (!absl::StrContains(module, kClusterMark)) return marks;
  Locations locations;
  std::vector<absl::string_view> computations;
  for (absl::string_view line : absl::StrSplit(module, '\n')) {
    locations.Read(line);
    if (absl::StrContains(line, kHostComputation)) computations.push_back(line);
  }
  for (absl::string_view line : computations) {
    const size_t key = line.find(kSendKey);
    const size_t location = line.rfind(kLocation);
    if (key == line.npos || location == line.npos) continue;
    const absl::string_view channel = line.substr(key + kSendKey.size());
    const absl::string_view mark = locations.MarkOf(line.substr(location));
    if (!mark.empty()) marks.emplace(channel.substr(0, channel.find('"')), mark);
  }
  return marks;
}

}  // namespace tf_tpu_ext
