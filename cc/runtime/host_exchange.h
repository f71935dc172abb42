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

// This host's side: what it sends to the others, and what it makes of what they send. All hosts
// combine the same values in the same order, so their results are equal bit for bit.
//
// What is combined on more than two hosts goes in two rounds if it is large: each host combines a
// part of it, and then sends that to all others. So a host sends no more with more hosts.
class HostExchange {
 public:
  // `here` are all participants of this host.
  HostExchange(const CollectiveKey& key, const std::string& name,
               std::vector<CollectiveParticipant> here, CollectiveOperation operation,
               const PodShape& shape);

  // The other hosts that take part.
  std::set<Host> others() const;

  // What this host sends in the first round.
  absl::StatusOr<HostLinks::Messages> Begin();

  // Whether what is received next is for another round.
  bool has_next_round() const { return next_round_; }
  absl::StatusOr<HostLinks::Messages> NextRound(const HostLinks::Messages& received,
                                                const HostLinks& links);

  // Does the operation for the participants of this host, with what the last round has brought.
  absl::Status Run(const HostLinks::Messages& received, const HostLinks& links);

  // Tells the participants of this host the end.
  void Finish(const absl::Status& status);

 private:
  // A value that the participants of `from` send to those of `to`.
  struct Piece {
    Rank from;
    // The rank whose buffer it is, for a participant that has one for every rank.
    int buffer = 0;
  };

  // Elements of what is combined.
  struct Part {
    int64_t begin = 0;
    int64_t end = 0;

    int64_t size() const { return end - begin; }
  };

  // Less is not worth another round.
  static constexpr int64_t kLeastBytesInParts = 256 << 10;

  // In the order in which a message has them.
  std::vector<Piece> Pieces(Host from, Host to) const;
  // That which a host combines.
  Part PartOf(Host host) const;
  int64_t ElementBytes() const;
  absl::StatusOr<HostMessage> Combine(Part part) const;
  absl::Status RunCombined(const HostLinks::Messages& received) const;
  void CopyParts(const HostLinks::Messages& received) const;
  absl::Status RunWhole(const HostLinks::Messages& received) const;

  const PodShape shape_;
  const CollectiveOperation operation_;
  // In the order of their ranks.
  std::vector<CollectiveParticipant> here_;
  std::map<Host, std::vector<Rank>> ranks_of_;
  const std::string what_;
  // Whether each host combines a part.
  const bool in_parts_;
  std::atomic<bool> next_round_;
  // What this host's participants combine to; in parts, its own part of that, and then what all
  // combine to there.
  HostMessage combined_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_HOST_EXCHANGE_H_
