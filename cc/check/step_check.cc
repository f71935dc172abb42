#include "cc/check/step_check.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/hash/hash.h"
#include "cc/program/probes.h"

namespace tf_tpu_ext {
namespace {

const char* KindOf(Worst worst) {
  switch (worst) {
    case Worst::kUnwritten:
      return kUnwrittenFinding;
    case Worst::kNan:
      return kNanFinding;
    default:
      return kInfinityFinding;
  }
}

ValueSummary Together(const ValueSummary& a, const ValueSummary& b) {
  return {absl::HashOf(a.hash, b.hash), std::max(a.worst, b.worst)};
}

// If an array is divided over the cores of a replica, each core has shown a part of it.
void AddParts(const std::vector<ValueSummary>& parts, std::vector<ValueSummary>* whole) {
  const size_t both = std::min(parts.size(), whole->size());
  for (size_t i = 0; i < both; ++i) (*whole)[i] = Together((*whole)[i], parts[i]);
  whole->insert(whole->end(), parts.begin() + static_cast<int64_t>(both), parts.end());
}

// A finding that begins at a probe.
Finding At(const CompiledProgram& program, int64_t step, int probe) {
  const Probe& place = program.probes->probes[probe];
  Finding finding;
  finding.program_id = program.id;
  finding.program = program.name;
  finding.step = step;
  finding.op = place.op;
  finding.source = place.source;
  finding.instruction = place.instruction;
  if (place.parameter.has_value()) {
    finding.argument = program.parameter_arguments[*place.parameter].value();
  }
  return finding;
}

void AddNonFinite(const CompiledProgram& program, int64_t step, Replica replica,
                  const ShownValues& shown, Findings* findings) {
  const Probes& probes = *program.probes;
  for (const NonFinite& found : FindNonFinite(probes, shown)) {
    Finding finding = At(program, step, found.probe);
    // What a variable holds was already found when it was written.
    if (finding.argument >= 0 && findings->HasNonFinite()) continue;
    finding.kind = KindOf(found.worst);
    finding.replica = replica.value();
    if (found.result.has_value()) {
      finding.result = found.result->value();
      const auto& variable = probes.results[*found.result].variable;
      if (variable.has_value()) finding.variable = program.parameter_arguments[*variable].value();
    }
    findings->Add(std::move(finding));
  }
}

void AddDifferences(const CompiledProgram& program, const std::set<ArgumentNumber>& variables,
                    int64_t step, const std::vector<const ShownValues*>& shown,
                    Findings* findings) {
  const Probes& probes = *program.probes;
  for (const Difference& found : FindDifferences(probes, shown)) {
    if (variables.count(program.parameter_arguments[found.variable.parameter]) == 0) continue;
    Finding finding = At(program, step, found.first);
    finding.kind = kReplicasDifferFinding;
    finding.variable = program.parameter_arguments[found.variable.parameter].value();
    if (found.parameter.has_value()) {
      finding.argument = program.parameter_arguments[*found.parameter].value();
    }
    finding.other_op = probes.probes[found.last].op;
    finding.other_source = probes.probes[found.last].source;
    findings->Add(std::move(finding));
  }
}

}  // namespace

StepCheck::StepCheck(std::shared_ptr<const CompiledProgram> program,
                     std::set<ArgumentNumber> core_variables, Findings* findings)
    : program_(std::move(program)),
      core_variables_(std::move(core_variables)),
      findings_(*findings),
      step_(findings_.BeginStep(program_->id)) {
  for (int slot = 0; slot < program_->num_slots(); ++slot) {
    shown_.push_back(std::make_unique<Shown>());
    absl::MutexLock lock(&shown_.back()->mutex);
    shown_.back()->values.resize(program_->probes->probes.size());
  }
}

void StepCheck::Show(Slot slot, int probe, ValueSummary value) {
  if (slot.value() >= static_cast<int>(shown_.size())) return;
  Shown& shown = *shown_[slot.value()];
  absl::MutexLock lock(&shown.mutex);
  if (probe >= static_cast<int>(shown.values.size())) return;
  std::vector<ValueSummary>& values = shown.values[probe];
  if (values.size() < kMostOfProbe) {
    values.push_back(value);
    return;
  }
  values.back() = Together(values.back(), value);
}

void StepCheck::End() {
  std::map<Replica, ShownValues> of_replicas;
  for (int slot = 0; slot < static_cast<int>(shown_.size()); ++slot) {
    absl::MutexLock lock(&shown_[slot]->mutex);
    ShownValues& values = shown_[slot]->values;
    // Cores of a replica that run as one show their values as the first of these cores.
    if (absl::c_all_of(values, [](const auto& of_probe) { return of_probe.empty(); })) continue;
    ShownValues& of_replica = of_replicas[program_->ReplicaOf(Slot(slot))];
    of_replica.resize(values.size());
    for (size_t probe = 0; probe < values.size(); ++probe) {
      AddParts(values[probe], &of_replica[probe]);
    }
  }
  std::vector<const ShownValues*> ran;
  for (const auto& [replica, shown] : of_replicas) {
    ran.push_back(&shown);
    AddNonFinite(*program_, step_, replica, shown, &findings_);
  }
  if (ran.size() > 1) AddDifferences(*program_, core_variables_, step_, ran, &findings_);
}

}  // namespace tf_tpu_ext
