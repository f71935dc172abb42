#include "cc/base/program_options.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace tf_tpu_ext {

std::string ProgramOptionsText(const ProgramOptions& options) {
  return absl::StrJoin(kProgramSwitches, ";", [&options](std::string* text, const auto& known) {
    absl::StrAppend(text, known.first, "=", options.*known.second ? 1 : 0);
  });
}

absl::Status ApplyProgramOptions(absl::string_view text, ProgramOptions* options) {
  for (const absl::string_view setting : absl::StrSplit(text, ';', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(setting, absl::MaxSplits('=', 1));
    const auto* known = std::find_if(std::begin(kProgramSwitches), std::end(kProgramSwitches),
                                     [&](const auto& each) { return each.first == parts.first; });
    if (known == std::end(kProgramSwitches) || (parts.second != "0" && parts.second != "1")) {
      return absl::InvalidArgumentError(
          absl::StrCat("A program was traced with the option '", setting,
                       "'; expected 0 or 1 for one of ", ProgramOptionsText(ProgramOptions()),
                       ". Another version of tf_tpu_ext traced it: trace it again."));
    }
    options->*known->second = parts.second == "1";
  }
  return absl::OkStatus();
}

}  // namespace tf_tpu_ext
