// A collective whose participants are on several hosts of a pod.
#ifndef TF_TPU_EXT_CC_RUNTIME_HOST_EXCHANGE_H_
#define TF_TPU_EXT_CC_RUNTIME_HOST_EXCHANGE_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cc/base/core_numbers.h"
#include "cc/base/pod_shape.h"
#include "cc/pods/host_links.h"
#include "cc/runtime/collective_table.h"

namespace tf_tpu_ext {

// This host's side: what it sends to the others, and what it does with what they send. All hosts
// combine the same values in the same order, so their results are bitwise identical.
//
// If more than two hosts combine a large value, they use two rounds: each host combines one part of
// it and then sends that to all others. So the amount that a host sends does not grow with the
// number of hosts. Other operations need one round, in which a host receives only what its
// participants need.
class HostExchange {
 public:
  // `here` are all participants on this host.
  HostExchange(const CollectiveKey& key, const std::string& name,
               std::vector<CollectiveParticipant> here, CollectiveOperation operation,
               const PodShape& shape);

  // The other hosts that take part.
  std::set<Host> others() const;

  // What this host sends in the first round.
  absl::StatusOr<HostLinks::Messages> Begin();

  // Whether the next messages are for another round.
  bool has_next_round() const { return next_round_; }
  absl::StatusOr<HostLinks::Messages> NextRound(const HostLinks::Messages& received,
                                                const HostLinks& links);

  // Performs the operation for the participants on this host with what the last round has brought.
  absl::Status Run(const HostLinks::Messages& received, const HostLinks& links);

  // Reports the end to the participants on this host.
  void Finish(const absl::Status& status);

 private:
  // A value that the participants on `from` send to those on `to`.
  struct Piece {
    Rank from;
    // The rank whose buffer it is, if the participant has one per rank.
    int buffer = 0;
  };

  // A range of the elements that are combined.
  struct Part {
    int64_t begin = 0;
    int64_t end = 0;

    int64_t size() const { return end - begin; }
  };

  // A smaller value is not worth another round.
  static constexpr int64_t kLeastBytesInParts = 256 << 10;

  // In the order in which a message contains them. One of the hosts is this one.
  std::vector<Piece> Pieces(Host from, Host to) const;
  bool Sends(Rank sender, Host to) const;
  bool Needs(Rank sender) const;
  // The part that a host combines.
  Part PartOf(Host host) const;
  // The parts that a host receives in the first round.
  std::vector<Part> PartsFor(Host host) const;
  int64_t ElementBytes() const;
  int64_t Bytes(const std::vector<Part>& parts) const;
  absl::StatusOr<HostMessage> Combine(const std::vector<Part>& parts) const;
  // The number of bytes that the last round brings from another host.
  int64_t BytesFrom(Host host) const;
  absl::Status RunCombined(const HostLinks::Messages& received) const;
  absl::Status RunScattered(const HostLinks::Messages& received) const;
  void CopyParts(const HostLinks::Messages& received) const;
  absl::Status RunWhole(const HostLinks::Messages& received) const;

  const PodShape shape_;
  const CollectiveOperation operation_;
  // In rank order.
  std::vector<CollectiveParticipant> here_;
  std::map<Host, std::vector<Rank>> ranks_of_;
  const std::string what_;
  // Whether each participant receives only the part of its rank.
  const bool scatters_;
  // Whether each host combines one part.
  const bool in_parts_;
  std::atomic<bool> next_round_;
  // The combined value of this host's participants, or what this host receives of it. With parts,
  // after the first round the combined value of this host's part from all hosts.
  HostMessage combined_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_HOST_EXCHANGE_H_
