// All sources of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/transfer/call_buffers.cc"
#include "cc/transfer/channel_op.cc"
#include "cc/transfer/channels.cc"
#include "cc/transfer/effect_xla_kernel.cc"
#include "cc/transfer/host_calls.cc"
#include "cc/transfer/host_custom_call.cc"
#include "cc/transfer/host_functions.cc"
#include "cc/transfer/host_order.cc"
#include "cc/transfer/monitored_channels.cc"
#include "cc/transfer/python_state.cc"
#include "cc/transfer/transfer_custom_call.cc"
#include "cc/transfer/transfer_stats.cc"
#include "cc/transfer/transfer_xla_kernels.cc"
// NOLINTEND(bugprone-suspicious-include)
