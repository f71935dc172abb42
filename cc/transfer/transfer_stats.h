// What is counted and reported for every cluster of outside compilation.
#ifndef TF_TPU_EXT_CC_TRANSFER_TRANSFER_STATS_H_
#define TF_TPU_EXT_CC_TRANSFER_TRANSFER_STATS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {

struct ClusterCounters {
  std::atomic<int64_t> calls{0};
  std::atomic<int64_t> bytes_to_host{0};
  std::atomic<int64_t> bytes_to_device{0};
  std::atomic<int64_t> running_nanoseconds{0};
  std::atomic<int64_t> waiting_nanoseconds{0};
};

int64_t TotalBytes(absl::Span<const tensorflow::Tensor> tensors);

// One cluster of one traced program.
struct ClusterRecord {
  std::string cluster;
  // The name under which it is counted: that of its function or, for a cluster in the host graph,
  // the mark on its transfers.
  std::string counted_as;
  // Empty if the cluster is called directly; otherwise why it is not.
  std::string not_folded_because;
  // The Python line that made the cluster, if known.
  std::string source;
};

// Thread-safe.
class TransferStats {
 public:
  // Programs that keep retracing must not fill the memory: older clusters are forgotten.
  static constexpr size_t kMaxRecords = 10'000;

  // The counters of a function or transfer with that name, created when they are first requested.
  std::shared_ptr<ClusterCounters> CountersOf(const std::string& name);
  // The same, or null if nothing has been counted.
  std::shared_ptr<ClusterCounters> FindCounters(const ClusterRecord& record) const;

  // Remembers a cluster; the same cluster is recorded only once.
  void RecordCluster(ClusterRecord record);
  // In the order in which they were recorded.
  std::vector<ClusterRecord> RecordedClusters() const;

 private:
  // Everything that distinguishes one cluster from another.
  using Identity = std::tuple<std::string, std::string, std::string, std::string>;

  static Identity IdentityOf(const ClusterRecord& record);

  mutable absl::Mutex mutex_;
  std::map<std::string, std::shared_ptr<ClusterCounters>> counters_ ABSL_GUARDED_BY(mutex_);
  std::deque<ClusterRecord> records_ ABSL_GUARDED_BY(mutex_);
  std::set<Identity> known_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_TRANSFER_TRANSFER_STATS_H_
