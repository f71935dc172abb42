// The custom call through which a running program sends tensors to channels and receives from them.
#ifndef TF_TPU_EXT_CC_PROGRAM_TRANSFER_CALL_H_
#define TF_TPU_EXT_CC_PROGRAM_TRANSFER_CALL_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cc/base/call_attributes.h"
#include "cc/program/dynamic_dimensions.h"

namespace tf_tpu_ext {

inline constexpr char kTransferTarget[] = "tf_tpu_ext_transfer";

// The channels of a core's infeed and outfeed, which programs of all launches share.
inline constexpr char kInfeedName[] = "infeed";
inline constexpr char kOutfeedName[] = "outfeed";

// Operands: the tensors to send, followed by the sizes of dynamic dimensions. Results: the received
// tensors.
struct TransferCall {
  // The original TensorFlow op, for errors.
  std::string op;
  // The names of the channels; empty if there is none.
  std::string send;
  std::string receive;
  std::vector<DynamicDimension> dynamic;
  // The name under which a cluster in the host graph is counted, by default the op's, and whether
  // the transfer counts as one of its calls. Infeed and outfeed are not counted.
  std::string counted_as;
  bool counts_call = true;
  // If a group of replicas runs as one program: which of them the transfer is for.
  std::optional<int> member;

  bool is_infeed() const { return receive == kInfeedName; }
  bool is_outfeed() const { return send == kOutfeedName; }
};

// Encodes the call as the backend_config of an instruction.
std::string Encode(const TransferCall& call);
absl::StatusOr<TransferCall> DecodeTransferCall(absl::string_view backend_config);
absl::StatusOr<TransferCall> DecodeTransferCall(const CallAttributes& attributes);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROGRAM_TRANSFER_CALL_H_
