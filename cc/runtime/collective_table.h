// Where the replicas of a program meet for a collective operation. No thread waits: the last
// participant to arrive does the work for all, and each is notified when it is done.
#ifndef TF_TPU_EXT_CC_RUNTIME_COLLECTIVE_TABLE_H_
#define TF_TPU_EXT_CC_RUNTIME_COLLECTIVE_TABLE_H_

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cc/base/core_numbers.h"
#include "cc/base/launch_numbers.h"
#include "cc/base/number.h"
#include "cc/pods/host_links.h"
#include "cc/runtime/collective_stats.h"

namespace tf_tpu_ext {

class HostExchange;

// The rank of a participant in a collective.
using Rank = Number<class RankTag>;

// One meeting: an operation of one run of a program among one group of cores.
struct CollectiveKey {
  RunId run_id;
  int64_t op_id = 0;
  bool cross_module = false;
  ByNumber<Rank, Core> cores;

  friend bool operator<(const CollectiveKey& a, const CollectiveKey& b) {
    return std::tie(a.run_id, a.op_id, a.cross_module, a.cores) <
           std::tie(b.run_id, b.op_id, b.cross_module, b.cores);
  }
  std::string DebugString() const;
};

struct CollectiveParticipant {
  Rank rank;
  // The number and type of its elements. They are the same for all participants, because they
  // determine what each reads and writes.
  int64_t elements = 0;
  int element_type = 0;
  // One buffer each, except that an all-to-all has one per rank. A participant on another host only
  // sends and receives nothing here.
  std::vector<const void*> send;
  std::vector<void*> recv;
  // The size of each buffer that it sends.
  int64_t send_bytes = 0;
  // The ranks that need its data, and those whose data it needs; nothing means all.
  std::optional<std::vector<Rank>> targets;
  std::optional<std::vector<Rank>> sources;
  // Set by the table.
  absl::Time arrived;
  std::function<void(absl::Status)> done;
};

struct CollectiveOperation {
  CollectiveOperation() = default;
  // Both are optional: an operation that is just a function has no `combine`.
  template <typename Run>
  CollectiveOperation(Run run) : run(std::move(run)) {}  // NOLINT(google-explicit-constructor)

  // Performs the operation. Participants are sorted by rank; those of other hosts whose data nobody
  // here needs are missing. Combined values may come from participants that receive nothing, for
  // others that send nothing.
  std::function<absl::Status(absl::Span<const CollectiveParticipant>)> run;
  // Combines this many elements from several participants into `result`, if the operation can be
  // split in this way. Each host then sends the others one buffer instead of one per core.
  std::function<absl::Status(const std::vector<const void*>& sent, int64_t elements, void* result)>
      combine;
  // The number of elements that a participant sends to be combined. If it receives as many, it
  // receives all of them, otherwise the part of its rank.
  int64_t combined_elements = 0;
};

class CollectiveTable {
 public:
  // Lets the run's collectives meet the other hosts of its pod, until Finish.
  void Connect(RunId run_id, std::shared_ptr<HostLinks> links);

  // Adds a participant to the meeting `key` of `size` participants. `name` describes the operation
  // in error messages. A participant that arrives for another operation, or with data of another
  // form, fails the meeting. For an operation of several buffers, a participant arrives once per
  // buffer, in the same order on every rank, without waiting in between. If some of the key's cores
  // are on other hosts, this host's cores meet first, regardless of `size`.
  void Arrive(const CollectiveKey& key, int size, const std::string& name,
              CollectiveParticipant participant, const CollectiveOperation& operation);

  // Fails all current and future meetings of the run, until Finish.
  void Abort(RunId run_id, const absl::Status& status);

  // Forgets the run.
  void Finish(RunId run_id);

  // Describes which cores of the run have waited for which for at least `age`. Empty if none have.
  std::string Describe(RunId run_id, absl::Duration age = absl::ZeroDuration()) const;

  // Statistics of the meetings of this host's cores.
  const CollectiveStats& stats() const { return stats_; }

 private:
  struct Meeting {
    int size = 0;
    std::string name;
    absl::Time since;
    // The number among the key's meetings, which identifies it between hosts.
    int64_t number = 0;
    std::vector<CollectiveParticipant> participants;

    bool Has(Rank rank) const;
    // Returns an error unless the participant takes part in the same operation as the first one.
    absl::Status CheckFits(const std::string& other_name, const CollectiveParticipant& other) const;
  };

  // What a run needs in order to meet other hosts.
  struct Links {
    std::shared_ptr<HostLinks> links;
    // The number of meetings that have begun for each key.
    std::map<CollectiveKey, int64_t> begun;
  };

  // The run's links if some of the key's cores are on other hosts, otherwise null.
  Links* LinksOf(const CollectiveKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MeetHosts(RunId run_id, const std::shared_ptr<HostExchange>& exchange,
                 const std::shared_ptr<HostLinks>& links, const std::string& name);
  // Performs one round of the exchange, and then the following rounds.
  void Exchange(const std::shared_ptr<HostExchange>& exchange,
                const std::shared_ptr<HostLinks>& links, const std::string& name,
                const absl::StatusOr<HostLinks::Messages>& messages);
  // Returns whether the exchange has not been aborted.
  bool StopExchanging(const std::shared_ptr<HostExchange>& exchange);

  CollectiveStats stats_;
  mutable absl::Mutex mutex_;
  std::map<RunId, Links> links_ ABSL_GUARDED_BY(mutex_);
  // Exchanges for which all participants of this host have arrived.
  std::map<std::shared_ptr<HostExchange>, RunId> exchanging_ ABSL_GUARDED_BY(mutex_);
  // Meetings of the same key differ in which of its ranks have already arrived.
  std::map<CollectiveKey, std::list<Meeting>> meetings_ ABSL_GUARDED_BY(mutex_);
  std::map<RunId, absl::Status> aborted_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_COLLECTIVE_TABLE_H_
