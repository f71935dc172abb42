// Measures how long cores wait for each other in collectives.
#ifndef TF_TPU_EXT_CC_RUNTIME_COLLECTIVE_STATS_H_
#define TF_TPU_EXT_CC_RUNTIME_COLLECTIVE_STATS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cc/base/core_numbers.h"
#include "cc/base/launch_numbers.h"

namespace tf_tpu_ext {

// How long one core has waited, and how long others have waited for it.
struct CoreWaits {
  Core core;
  absl::Duration waited;
  // How often it arrived last, and the total time that the others had waited by then.
  int64_t times_last = 0;
  absl::Duration kept_waiting;
};

// All meetings for one operation of one size between the same cores.
struct CollectiveTotals {
  std::string name;
  int64_t bytes = 0;
  int64_t meetings = 0;
  std::vector<CoreWaits> cores;
};

// One meeting, with the time when each core arrived. It ended when the last one did.
struct CollectiveMeeting {
  std::string name;
  RunId run_id;
  std::vector<std::pair<Core, absl::Time>> arrivals;
};

// Thread-safe.
class CollectiveStats {
 public:
  // Further kinds of collectives are not counted, and further meetings are not recorded
  // individually.
  static constexpr size_t kMostKinds = 1'000;
  static constexpr size_t kMostMeetings = 4'000;

  // Counts a meeting whose last core has arrived. `bytes` is what each core sent.
  void Count(CollectiveMeeting meeting, int64_t bytes);

  std::vector<CollectiveTotals> Totals() const;
  // The first kMostMeetings meetings.
  std::vector<CollectiveMeeting> Meetings() const;

 private:
  using Kind = std::tuple<std::string, int64_t, std::vector<Core>>;

  mutable absl::Mutex mutex_;
  std::map<Kind, CollectiveTotals> totals_ ABSL_GUARDED_BY(mutex_);
  std::vector<CollectiveMeeting> meetings_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_COLLECTIVE_STATS_H_
