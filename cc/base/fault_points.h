// Deliberate failures: tests arm a point of the runtime, and whatever reaches it fails or stalls
// there.
//
// Nothing is armed unless a test asks for it; a point then costs one read of a flag. Every point is
// at a place where a real failure can happen, and fails in the same way.
#ifndef TF_TPU_EXT_CC_BASE_FAULT_POINTS_H_
#define TF_TPU_EXT_CC_BASE_FAULT_POINTS_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tf_tpu_ext {

enum class FaultPoint {
  kAllocation,   // memory for a run, a transfer or a group of replicas
  kCompilation,  // XLA compiles a module
  kLaunch,       // a core joins a launch
  kCollective,   // a core enters a collective, or gradients are summed for the shared update
  kHostCall,     // a function on the host is called
  kTransfer,     // a program or a host op sends or receives
};

inline constexpr int kNumFaultPoints = 6;

absl::string_view FaultPointName(FaultPoint point);

// How often a point was reached while any fault was armed, and what happened there.
struct FaultCounts {
  FaultPoint point;
  int64_t reached = 0;
  int64_t failed = 0;
  int64_t stalled = 0;
};

// Arms the point of this name for one fault: the thread that reaches it after `after` others fails,
// or sleeps if `stall` is positive. Faults add up. Returns an error for an unknown name.
absl::Status ArmFault(absl::string_view name, int64_t after, absl::Duration stall);

// Disarms everything. The counts stay.
void DisarmFaults();

// The counts of all points since the library was loaded.
std::vector<FaultCounts> CountFaults();

namespace internal {

extern std::atomic<bool> faults_armed;
absl::Status ReachFaultPoint(FaultPoint point);

}  // namespace internal

// Call this at the point, without holding a lock: it may sleep.
inline absl::Status FaultAt(FaultPoint point) {
  if (!internal::faults_armed.load(std::memory_order_relaxed)) return absl::OkStatus();
  return internal::ReachFaultPoint(point);
}

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_FAULT_POINTS_H_
