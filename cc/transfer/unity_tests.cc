// All tests of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/transfer/call_buffers_test.cc"
#include "cc/transfer/channel_table_test.cc"
#include "cc/transfer/channels_test.cc"
#include "cc/transfer/host_calls_test.cc"
#include "cc/transfer/host_custom_call_test.cc"
#include "cc/transfer/host_functions_test.cc"
#include "cc/transfer/host_order_test.cc"
#include "cc/transfer/monitored_channels_test.cc"
#include "cc/transfer/python_state_test.cc"
#include "cc/transfer/transfer_custom_call_test.cc"
#include "cc/transfer/transfer_stats_test.cc"
#include "cc/transfer/transfer_xla_kernels_test.cc"
// NOLINTEND(bugprone-suspicious-include)
