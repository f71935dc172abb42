// Where the replicas of a program meet for a collective operation. Nobody waits on a thread: the
// last participant to arrive does the work for all, and each is told when it is done.
#ifndef TF_TPU_EXT_CC_RUNTIME_COLLECTIVE_TABLE_H_
#define TF_TPU_EXT_CC_RUNTIME_COLLECTIVE_TABLE_H_

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cc/base/core_numbers.h"
#include "cc/base/launch_numbers.h"
#include "cc/base/number.h"

namespace tf_tpu_ext {

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
  // One buffer each, except for an all-to-all, which has one for every rank.
  std::vector<const void*> send;
  std::vector<void*> recv;
  // The rank whose data a permutation brings here; none fills with zeros.
  std::optional<Rank> source_rank;
  std::function<void(absl::Status)> done;
};

class CollectiveTable {
 public:
  // Does the operation; participants are ordered by rank.
  using Operation = std::function<absl::Status(absl::Span<const CollectiveParticipant>)>;

  // Adds a participant to the meeting `key` of `size` participants. `name` says what the operation
  // is in error messages. A participant that comes to another operation, or with data of another
  // form, fails the meeting. An operation of several buffers arrives once for each of them, in the
  // same order on every rank, without waiting in between.
  void Arrive(const CollectiveKey& key, int size, const std::string& name,
              CollectiveParticipant participant, const Operation& operation);

  // Fails every meeting of the run, now and in future, until Finish.
  void Abort(RunId run_id, const absl::Status& status);

  // Forgets the run.
  void Finish(RunId run_id);

  // Who has waited for whom in the run for at least `age`; empty if nobody has.
  std::string Describe(RunId run_id, absl::Duration age = absl::ZeroDuration()) const;

 private:
  struct Meeting {
    int size = 0;
    std::string name;
    absl::Time since;
    std::vector<CollectiveParticipant> participants;

    bool Has(Rank rank) const;
    // An error unless the participant takes part in the same operation as the first one.
    absl::Status CheckFits(const std::string& other_name, const CollectiveParticipant& other) const;
  };

  mutable absl::Mutex mutex_;
  // The meetings of one key differ in which of its ranks have come already.
  std::map<CollectiveKey, std::list<Meeting>> meetings_ ABSL_GUARDED_BY(mutex_);
  std::map<RunId, absl::Status> aborted_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_COLLECTIVE_TABLE_H_
