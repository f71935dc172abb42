// Where the replicas of a program meet for a collective operation. Nobody waits on a thread: the
// last participant to arrive does the work for all, and each is told when it is done.
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

// The place of a participant in a collective.
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
  // How much it brings, of what: the same for all, since what each reads and writes follows from
  // it.
  int64_t elements = 0;
  int element_type = 0;
  // One buffer each, except for an all-to-all, which has one for every rank. One of another host
  // sends only, and receives nothing here.
  std::vector<const void*> send;
  std::vector<void*> recv;
  // Of each buffer that it sends.
  int64_t send_bytes = 0;
  // The rank whose data a permutation brings here; none fills with zeros.
  std::optional<Rank> source_rank;
  // Set by the table.
  absl::Time arrived;
  std::function<void(absl::Status)> done;
};

struct CollectiveOperation {
  CollectiveOperation() = default;
  // Neither needs the other: an operation that is nothing but a function has no `combine`.
  template <typename Run>
  CollectiveOperation(Run run) : run(std::move(run)) {}  // NOLINT(google-explicit-constructor)

  // Does the operation; participants are ordered by rank. What is combined may come in parts from
  // participants that receive nothing, for others that send nothing.
  std::function<absl::Status(absl::Span<const CollectiveParticipant>)> run;
  // Combines so many elements of what several participants send into `result`, if the operation is
  // of that kind: then each host sends the others one buffer, not one for each of its cores.
  std::function<absl::Status(const std::vector<const void*>& sent, int64_t elements, void* result)>
      combine;
  // What a participant sends to be combined. If it receives as many, it receives all of them.
  int64_t combined_elements = 0;
};

class CollectiveTable {
 public:
  // Lets the run's collectives meet the other hosts of its pod, until Finish.
  void Connect(RunId run_id, std::shared_ptr<HostLinks> links);

  // Adds a participant to the meeting `key` of `size` participants. `name` says what the operation
  // is in error messages. A participant that comes to another operation, or with data of another
  // form, fails the meeting. An operation of several buffers arrives once for each of them, in the
  // same order on every rank, without waiting in between. If some of the key's cores are on other
  // hosts, those of this one meet first, whatever `size`.
  void Arrive(const CollectiveKey& key, int size, const std::string& name,
              CollectiveParticipant participant, const CollectiveOperation& operation);

  // Fails every meeting of the run, now and in future, until Finish.
  void Abort(RunId run_id, const absl::Status& status);

  // Forgets the run.
  void Finish(RunId run_id);

  // Who has waited for whom in the run for at least `age`; empty if nobody has.
  std::string Describe(RunId run_id, absl::Duration age = absl::ZeroDuration()) const;

  // Of the meetings of cores of this host.
  const CollectiveStats& stats() const { return stats_; }

 private:
  struct Meeting {
    int size = 0;
    std::string name;
    absl::Time since;
    // Of the key's meetings: what tells them apart between hosts.
    int64_t number = 0;
    std::vector<CollectiveParticipant> participants;

    bool Has(Rank rank) const;
    // An error unless the participant takes part in the same operation as the first one.
    absl::Status CheckFits(const std::string& other_name, const CollectiveParticipant& other) const;
  };

  // What a run needs to meet other hosts.
  struct Links {
    std::shared_ptr<HostLinks> links;
    // How many meetings have begun for each key.
    std::map<CollectiveKey, int64_t> begun;
  };

  // The links of the run if some of the key's cores are on other hosts; else null.
  Links* LinksOf(const CollectiveKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MeetHosts(RunId run_id, const std::shared_ptr<HostExchange>& exchange,
                 const std::shared_ptr<HostLinks>& links, const std::string& name);
  // One round of the exchange, and then those that follow.
  void Exchange(const std::shared_ptr<HostExchange>& exchange,
                const std::shared_ptr<HostLinks>& links, const std::string& name,
                const absl::StatusOr<HostLinks::Messages>& messages);
  // Whether it has not been aborted.
  bool StopExchanging(const std::shared_ptr<HostExchange>& exchange);

  CollectiveStats stats_;
  mutable absl::Mutex mutex_;
  std::map<RunId, Links> links_ ABSL_GUARDED_BY(mutex_);
  // Those whose participants of this host have all come.
  std::map<std::shared_ptr<HostExchange>, RunId> exchanging_ ABSL_GUARDED_BY(mutex_);
  // The meetings of one key differ in which of its ranks have come already.
  std::map<CollectiveKey, std::list<Meeting>> meetings_ ABSL_GUARDED_BY(mutex_);
  std::map<RunId, absl::Status> aborted_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_COLLECTIVE_TABLE_H_
