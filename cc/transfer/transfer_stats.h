// What is told of every cluster of outside compilation.
#ifndef TF_TPU_EXT_CC_TRANSFER_TRANSFER_STATS_H_
#define TF_TPU_EXT_CC_TRANSFER_TRANSFER_STATS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

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
  // Under which name it is counted: that of its function, or the mark that the transfers of a
  // cluster in the host graph bear.
  std::string counted_as;
  // Empty if the cluster is called directly, else why it is not.
  std::string not_folded_because;
  // The Python line that made it, if known.
  std::string source;
};

// The counters of a function or transfer of that name, made at its first mention.
std::shared_ptr<ClusterCounters> CountersOf(const std::string& name);
// The same, or null if nothing was counted.
std::shared_ptr<ClusterCounters> FindCounters(const ClusterRecord& record);

// Remembers a cluster; the same one again counts once.
void RecordCluster(ClusterRecord record);
std::vector<ClusterRecord> RecordedClusters();

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_TRANSFER_TRANSFER_STATS_H_
