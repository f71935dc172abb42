#include "cc/check/findings.h"

#include <utility>

#include "absl/algorithm/container.h"

namespace tf_tpu_ext {

int64_t Findings::BeginStep(int64_t program_id) {
  absl::MutexLock lock(&mutex_);
  return ++steps_[program_id];
}

Findings::Key Findings::KeyOf(const Finding& finding) {
  return {finding.kind,     finding.program_id,  finding.op,
          finding.source,   finding.instruction, finding.argument,
          finding.variable, finding.other_op,    finding.other_source};
}

void Findings::Add(Finding finding) {
  Key key = KeyOf(finding);
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

void Findings::AddPossible(PossibleRace race) {
  absl::MutexLock lock(&mutex_);
  if (possible_races_.size() == kMost) return;
  Key key = KeyOf(race.finding);
  possible_races_.emplace(
      std::make_tuple(std::move(race.cluster), std::move(race.other_cluster), std::move(key)),
      std::move(race.finding));
}

void Findings::AddRacesOf(const HostCallers& callers, int64_t step) {
  std::vector<Finding> found;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [place, finding] : possible_races_) {
      const auto some = callers.find(std::get<0>(place));
      const auto others = callers.find(std::get<1>(place));
      if (some == callers.end() || others == callers.end()) continue;
      // Only a single core may have called for both.
      if (some->second.size() == 1 && some->second == others->second) continue;
      found.push_back(finding);
    }
  }
  for (Finding& finding : found) {
    finding.step = step;
    Add(std::move(finding));
  }
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
