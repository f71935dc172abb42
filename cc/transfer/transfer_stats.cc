#include "cc/transfer/transfer_stats.h"

#include <deque>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/base/const_init.h"
#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tf_tpu_ext {
namespace {

// Programs that trace anew for ever must not fill the memory.
constexpr size_t kMaxRecords = 10'000;

absl::Mutex mutex(absl::kConstInit);

using Identity = std::tuple<std::string, std::string, std::string, std::string>;

Identity IdentityOf(const ClusterRecord& record) {
  return {record.cluster, record.counted_as, record.not_folded_because, record.source};
}

struct Registry {
  std::map<std::string, std::shared_ptr<ClusterCounters>> counters;
  std::deque<ClusterRecord> records;
  std::set<Identity> known;
};

Registry& GetRegistry() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
  static auto* registry = new Registry;
  return *registry;
}

}  // namespace

int64_t TotalBytes(absl::Span<const tensorflow::Tensor> tensors) {
  int64_t bytes = 0;
  for (const auto& tensor : tensors) bytes += static_cast<int64_t>(tensor.TotalBytes());
  return bytes;
}

std::shared_ptr<ClusterCounters> CountersOf(const std::string& name) {
  absl::MutexLock lock(&mutex);
  std::shared_ptr<ClusterCounters>& counters = GetRegistry().counters[name];
  if (counters == nullptr) counters = std::make_shared<ClusterCounters>();
  return counters;
}

std::shared_ptr<ClusterCounters> FindCounters(const ClusterRecord& record) {
  absl::MutexLock lock(&mutex);
  const Registry& registry = GetRegistry();
  const auto found = registry.counters.find(record.counted_as);
  return found == registry.counters.end() ? nullptr : found->second;
}

void RecordCluster(ClusterRecord record) {
  absl::MutexLock lock(&mutex);
  Registry& registry = GetRegistry();
  if (!registry.known.insert(IdentityOf(record)).second) return;
  registry.records.push_back(std::move(record));
  if (registry.records.size() <= kMaxRecords) return;
  const ClusterRecord& oldest = registry.records.front();
  registry.known.erase(IdentityOf(oldest));
  registry.counters.erase(oldest.counted_as);
  registry.records.pop_front();
}

std::vector<ClusterRecord> RecordedClusters() {
  absl::MutexLock lock(&mutex);
  const Registry& registry = GetRegistry();
  return {registry.records.begin(), registry.records.end()};
}

}  // namespace tf_tpu_ext
