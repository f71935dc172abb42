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

constexpr absl::string_view kPackage = "/tf_tpu_ext/";

std::string OwnFolder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&OwnFolder), &info) == 0 || info.dli_fname == nullptr) {
    return "";
  }
  return PackageFolder(info.dli_fname);
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

std::string PackageFolder(absl::string_view library) {
  const size_t found = library.rfind(kPackage);
  return std::string(library.substr(0, found == library.npos ? 0 : found + kPackage.size()));
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
