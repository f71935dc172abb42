// A collective whose participants are on several hosts of a pod.
#ifndef TF_TPU_EXT_CC_RUNTIME_HOST_EXCHANGE_H_
#define TF_TPU_EXT_CC_RUNTIME_HOST_EXCHANGE_H_

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
class HostExchange {
 public:
  // `here` are all participants of this host.
  HostExchange(const CollectiveKey& key, const std::string& name,
               std::vector<CollectiveParticipant> here, CollectiveOperation operation,
               const PodShape& shape);

  // The other hosts that take part.
  std::set<Host> others() const;

  absl::StatusOr<HostLinks::Messages> MessagesOfThisHost();

  // Does the operation for the participants of this host.
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

  // In the order in which a message has them.
  std::vector<Piece> Pieces(Host from, Host to) const;
  absl::Status RunCombined(const HostLinks::Messages& received) const;
  absl::Status RunWhole(const HostLinks::Messages& received) const;

  const PodShape shape_;
  const CollectiveOperation operation_;
  // In the order of their ranks.
  std::vector<CollectiveParticipant> here_;
  std::map<Host, std::vector<Rank>> ranks_of_;
  const std::string what_;
  // What this host's participants combine to.
  HostMessage combined_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_HOST_EXCHANGE_H_
