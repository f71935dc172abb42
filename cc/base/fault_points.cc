#include "cc/base/fault_points.h"

#include <array>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"

namespace tf_tpu_ext {
namespace internal {

std::atomic<bool> faults_armed{false};

}  // namespace internal

namespace {

constexpr std::array<absl::string_view, kNumFaultPoints> kNames = {
    "allocation", "compilation", "launch", "collective", "host_call", "transfer"};

struct ArmedFault {
  FaultPoint point;
  // How many more threads reach the point unharmed.
  int64_t after;
  absl::Duration stall;
};

class Faults {
 public:
  Faults() {
    for (int i = 0; i < kNumFaultPoints; ++i) counts_[i].point = static_cast<FaultPoint>(i);
  }

  void Arm(const ArmedFault& fault) {
    absl::MutexLock lock(&mutex_);
    armed_.push_back(fault);
    internal::faults_armed = true;
  }

  void Disarm() {
    absl::MutexLock lock(&mutex_);
    armed_.clear();
    internal::faults_armed = false;
  }

  // The fault that the caller has to suffer, if any.
  std::optional<ArmedFault> Reach(FaultPoint point) {
    absl::MutexLock lock(&mutex_);
    FaultCounts& counts = counts_[static_cast<int>(point)];
    ++counts.reached;
    std::optional<ArmedFault> suffered;
    for (ArmedFault& fault : armed_) {
      if (fault.point != point || fault.after < 0) continue;
      // If several are due, the later ones go to the next callers.
      if (fault.after > 0) {
        --fault.after;
      } else if (!suffered.has_value()) {
        suffered = fault;
        fault.after = -1;
      }
    }
    if (!suffered.has_value()) return suffered;
    armed_.erase(absl::c_find_if(armed_, [](const ArmedFault& fault) { return fault.after < 0; }));
    internal::faults_armed = !armed_.empty();
    ++(suffered->stall > absl::ZeroDuration() ? counts.stalled : counts.failed);
    return suffered;
  }

  std::vector<FaultCounts> Counts() const {
    absl::MutexLock lock(&mutex_);
    return {counts_.begin(), counts_.end()};
  }

 private:
  mutable absl::Mutex mutex_;
  std::vector<ArmedFault> armed_ ABSL_GUARDED_BY(mutex_);
  std::array<FaultCounts, kNumFaultPoints> counts_ ABSL_GUARDED_BY(mutex_);
};

// Never destroyed: threads of the runtime outlive static objects.
Faults& AllFaults() {
  static auto* const faults = new Faults;
  return *faults;
}

absl::StatusCode CodeOf(FaultPoint point) {
  return point == FaultPoint::kAllocation ? absl::StatusCode::kResourceExhausted
                                          : absl::StatusCode::kInternal;
}

}  // namespace

namespace internal {

absl::Status ReachFaultPoint(FaultPoint point) {
  const std::optional<ArmedFault> fault = AllFaults().Reach(point);
  if (!fault.has_value()) return absl::OkStatus();
  if (fault->stall > absl::ZeroDuration()) {
    absl::SleepFor(fault->stall);
    return absl::OkStatus();
  }
  return absl::Status(CodeOf(point), absl::StrCat("A test has made this fail: fault point ",
                                                  FaultPointName(point), "."));
}

}  // namespace internal

absl::string_view FaultPointName(FaultPoint point) { return kNames[static_cast<int>(point)]; }

absl::Status ArmFault(absl::string_view name, int64_t after, absl::Duration stall) {
  const auto found = absl::c_find(kNames, name);
  if (found == kNames.end()) {
    return absl::InvalidArgumentError(absl::StrCat("There is no fault point '", name,
                                                   "'; expected one of ",
                                                   absl::StrJoin(kNames, ", "), "."));
  }
  if (after < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("A fault comes after ", after, " others; expected 0 or more."));
  }
  AllFaults().Arm({static_cast<FaultPoint>(found - kNames.begin()), after, stall});
  return absl::OkStatus();
}

void DisarmFaults() { AllFaults().Disarm(); }

std::vector<FaultCounts> CountFaults() { return AllFaults().Counts(); }

}  // namespace tf_tpu_ext
