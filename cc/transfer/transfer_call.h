// The custom call through which a running program exchanges tensors with the host.
#ifndef TF_TPU_EXT_CC_TRANSFER_TRANSFER_CALL_H_
#define TF_TPU_EXT_CC_TRANSFER_TRANSFER_CALL_H_

namespace tf_tpu_ext {

inline constexpr char kTransferTarget[] = "tf_tpu_ext_transfer";

// Its string attributes: the channels' names, empty for none; which dimensions are dynamic; and the
// TensorFlow op that it stands for.
inline constexpr char kTransferSend[] = "send";
inline constexpr char kTransferReceive[] = "receive";
inline constexpr char kTransferDynamic[] = "dynamic";
inline constexpr char kTransferOp[] = "op";
// And the name under which its cluster is counted; empty if that is the op's.
inline constexpr char kTransferCountedAs[] = "counted_as";
// Integer attributes: whether it counts as a call of the cluster; and the number of the program's
// host function that is called, instead of channels.
inline constexpr char kTransferCountsCall[] = "counts_call";
inline constexpr char kTransferFunction[] = "function";
// The replica of a group that the call is for, where a group runs as one program.
inline constexpr char kTransferMember[] = "member";

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_TRANSFER_TRANSFER_CALL_H_
