#include "cc/base/user_lines.h"

#include <dlfcn.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace tf_tpu_ext {
namespace {

// Matches wherever the packages are installed. Keras calls layers through optree.
constexpr absl::string_view kLibraryFolders[] = {
    "/tensorflow/python/", "/tensorflow/compiler/",        "/keras/src/", "-packages/optree/",
    "/tf_keras/",          "/tensorflow_estimator/python/"};

// The folder of our Python package, which contains the library, with a slash at the end.
std::string OwnFolder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&OwnFolder), &info) == 0 || info.dli_fname == nullptr) {
    return "";
  }
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

}  // namespace

std::string SourceLine::Text() const { return known() ? absl::StrCat(file, ":", line) : ""; }

SourceLine ParseSourceLine(absl::string_view text) {
  const size_t colon = text.rfind(':');
  SourceLine source;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(text.substr(colon + 1), &source.line)) {
    return {};
  }
  source.file = std::string(text.substr(0, colon));
  return source;
}

bool IsLibraryFile(absl::string_view file) {
  static const auto* const own = new std::string(OwnFolder());
  if (file.empty() || absl::StartsWith(file, "<")) return true;
  if (!own->empty() && absl::StartsWith(file, *own)) return true;
  return std::any_of(std::begin(kLibraryFolders), std::end(kLibraryFolders),
                     [file](absl::string_view folder) { return absl::StrContains(file, folder); });
}

SourceLine UserLine(const tensorflow::AbstractStackTrace* trace) {
  if (trace == nullptr) return {};
  const std::vector<tensorflow::StackFrame> frames = trace->ToUncachedFrames();
  const auto found = std::find_if(frames.rbegin(), frames.rend(), [](const auto& frame) {
    return !IsLibraryFile(frame.file_name);
  });
  if (found == frames.rend()) return {};
  return {found->file_name, found->line_number};
}

}  // namespace tf_tpu_ext
