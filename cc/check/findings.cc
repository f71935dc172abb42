#include "cc/check/findings.h"

#include <utility>

#include "absl/algorithm/container.h"

namespace tf_tpu_ext {

int64_t Findings::BeginStep(int64_t program_id) {
  absl::MutexLock lock(&mutex_);
  return ++steps_[program_id];
}

void Findings::Add(Finding finding) {
  Key key(finding.kind, finding.program_id, finding.op, finding.source, finding.instruction,
          finding.argument, finding.variable, finding.other_op, finding.other_source);
  absl::MutexLock lock(&mutex_);
  const auto place = places_.find(key);
  if (place != places_.end()) {
    ++findings_[place->second].count;
    return;
  }
  if (findings_.size() == kMost) return;
  places_.emplace(std::move(key), findings_.size());
  finding.count = 1;
  findings_.push_back(std::move(finding));
}

bool Findings::HasNonFinite() const {
  absl::MutexLock lock(&mutex_);
  return absl::c_any_of(findings_, [](const Finding& finding) {
    return finding.kind == kNanFinding || finding.kind == kInfinityFinding ||
           finding.kind == kUnwrittenFinding;
  });
}

std::vector<Finding> Findings::Get() const {
  absl::MutexLock lock(&mutex_);
  return findings_;
}

int64_t Findings::steps() const {
  absl::MutexLock lock(&mutex_);
  int64_t steps = 0;
  for (const auto& [program, count] : steps_) steps += count;
  return steps;
}

}  // namespace tf_tpu_ext
