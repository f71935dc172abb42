#include "cc/check/shown_values.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"

namespace tf_tpu_ext {
namespace {

bool Equal(const std::vector<ValueSummary>& a, const std::vector<ValueSummary>& b) {
  return absl::c_equal(a, b, [](const ValueSummary& one, const ValueSummary& other) {
    return one.hash == other.hash;
  });
}

// Finds probes that show something worse than everything that they were computed from.
class Origins {
 public:
  Origins(const Probes& probes, const ShownValues& shown) : probes_(probes), shown_(shown) {}

  bool IsOrigin(int probe) const {
    for (size_t time = 0; time < shown_[probe].size(); ++time) {
      const Worst worst = shown_[probe][time].worst;
      if (worst == Worst::kFinite) continue;
      const bool begins = absl::c_all_of(probes_.probes[probe].operands, [&](int operand) {
        return operand == probe || WorstAt(operand, probe, time) == Worst::kFinite;
      });
      if (begins) return true;
    }
    return false;
  }

 private:
  // What `operand` was when `user` was computed: in the same iteration, if they are in one loop.
  Worst WorstAt(int operand, int user, size_t time) const {
    const bool together = probes_.probes[operand].computation == probes_.probes[user].computation &&
                          shown_[operand].size() == shown_[user].size();
    return together ? shown_[operand][time].worst : WorstOf(shown_, operand);
  }

  const Probes& probes_;
  const ShownValues& shown_;
};

class NonFiniteSearch {
 public:
  NonFiniteSearch(const Probes& probes, const ShownValues& shown)
      : probes_(probes), shown_(shown), origins_(probes, shown) {}

  // Traces back from values that leave the program.
  void From(const std::vector<int>& leaving, std::optional<ResultNumber> result) {
    std::vector<int> open = leaving;
    while (!open.empty()) {
      const int probe = open.back();
      open.pop_back();
      if (WorstOf(shown_, probe) == Worst::kFinite || !seen_.insert(probe).second) continue;
      if (origins_.IsOrigin(probe)) found_.push_back({probe, WorstOf(shown_, probe), result});
      const std::vector<int>& operands = probes_.probes[probe].operands;
      open.insert(open.end(), operands.begin(), operands.end());
    }
  }

  std::vector<NonFinite> Take() {
    absl::c_sort(found_, [](const NonFinite& a, const NonFinite& b) { return a.probe < b.probe; });
    return std::move(found_);
  }

 private:
  const Probes& probes_;
  const ShownValues& shown_;
  const Origins origins_;
  std::set<int> seen_;
  std::vector<NonFinite> found_;
};

class DifferenceSearch {
 public:
  DifferenceSearch(const Probes& probes, absl::Span<const ShownValues* const> shown)
      : probes_(probes), shown_(shown) {
    for (size_t i = 0; i < probes_.probes.size(); ++i) {
      const std::optional<ParameterNumber>& parameter = probes_.probes[i].parameter;
      if (parameter.has_value()) of_parameter_[*parameter] = static_cast<int>(i);
    }
  }

  std::optional<Difference> Find(const MirroredVariable& variable) const {
    const auto before = of_parameter_.find(variable.parameter);
    if (before != of_parameter_.end() && Differs(before->second)) {
      return Difference{variable, before->second, before->second, std::nullopt};
    }
    if (!variable.result.has_value() || !probes_.results.Has(*variable.result)) return std::nullopt;
    for (int probe : probes_.results[*variable.result].probes) {
      if (Differs(probe) && !probes_.probes[probe].parameter.has_value()) {
        return FromThe(probe, variable);
      }
    }
    return std::nullopt;
  }

 private:
  bool Differs(int probe) const {
    return absl::c_any_of(shown_, [&](const ShownValues* other) {
      return !Equal((*shown_[0])[probe], (*other)[probe]);
    });
  }

  // Traces back along values that differ.
  Difference FromThe(int last, const MirroredVariable& variable) const {
    Difference difference{variable, last, last, std::nullopt};
    for (int probe : DifferentBehind(last)) {
      if (!probes_.probes[probe].carries) difference.first = std::min(difference.first, probe);
    }
    // The parameter that brings values that differ to the first op; the nearest, if there are
    // several.
    for (int probe : DifferentBehind(difference.first)) {
      const std::optional<ParameterNumber>& parameter = probes_.probes[probe].parameter;
      if (parameter.has_value()) difference.parameter = parameter;
    }
    return difference;
  }

  std::set<int> DifferentBehind(int last) const {
    std::set<int> found;
    std::vector<int> open = {last};
    while (!open.empty()) {
      const int probe = open.back();
      open.pop_back();
      if (!found.insert(probe).second) continue;
      for (int operand : probes_.probes[probe].operands) {
        if (Differs(operand)) open.push_back(operand);
      }
    }
    return found;
  }

  const Probes& probes_;
  const absl::Span<const ShownValues* const> shown_;
  std::map<ParameterNumber, int> of_parameter_;
};

}  // namespace

Worst WorstOf(const ShownValues& shown, int probe) {
  Worst worst = Worst::kFinite;
  for (const ValueSummary& value : shown[probe]) worst = std::max(worst, value.worst);
  return worst;
}

std::vector<NonFinite> FindNonFinite(const Probes& probes, const ShownValues& shown) {
  NonFiniteSearch search(probes, shown);
  for (ResultNumber result : probes.results.numbers()) {
    search.From(probes.results[result].probes, result);
  }
  search.From(probes.to_host, std::nullopt);
  return search.Take();
}

std::vector<Difference> FindDifferences(const Probes& probes,
                                        absl::Span<const ShownValues* const> shown) {
  std::vector<Difference> differences;
  const DifferenceSearch search(probes, shown);
  for (const MirroredVariable& variable : probes.mirrored) {
    if (std::optional<Difference> found = search.Find(variable)) differences.push_back(*found);
  }
  return differences;
}

}  // namespace tf_tpu_ext
