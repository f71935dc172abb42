#include "cc/transfer/transfer_stats.h"

#include <utility>

namespace tf_tpu_ext {

int64_t TotalBytes(absl::Span<const tensorflow::Tensor> tensors) {
  int64_t bytes = 0;
  for (const auto& tensor : tensors) bytes += static_cast<int64_t>(tensor.TotalBytes());
  return bytes;
}

TransferStats::Identity TransferStats::IdentityOf(const ClusterRecord& record) {
  return {record.cluster, record.counted_as, record.not_folded_because, record.source};
}

std::shared_ptr<ClusterCounters> TransferStats::CountersOf(const std::string& name) {
  absl::MutexLock lock(&mutex_);
  std::shared_ptr<ClusterCounters>& counters = counters_[name];
  if (counters == nullptr) counters = std::make_shared<ClusterCounters>();
  return counters;
}

std::shared_ptr<ClusterCounters> TransferStats::FindCounters(const ClusterRecord& record) const {
  absl::MutexLock lock(&mutex_);
  const auto found = counters_.find(record.counted_as);
  return found == counters_.end() ? nullptr : found->second;
}

void TransferStats::RecordCluster(ClusterRecord record) {
  absl::MutexLock lock(&mutex_);
  if (!known_.insert(IdentityOf(record)).second) return;
  records_.push_back(std::move(record));
  if (records_.size() <= kMaxRecords) return;
  const ClusterRecord& oldest = records_.front();
  known_.erase(IdentityOf(oldest));
  counters_.erase(oldest.counted_as);
  records_.pop_front();
}

std::vector<ClusterRecord> TransferStats::RecordedClusters() const {
  absl::MutexLock lock(&mutex_);
  return {records_.begin(), records_.end()};
}

}  // namespace tf_tpu_ext
