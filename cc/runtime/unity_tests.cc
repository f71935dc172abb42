// All tests of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/runtime/batched_replicas_test.cc"
#include "cc/runtime/caller_executor_test.cc"
#include "cc/runtime/collective_table_test.cc"
#include "cc/runtime/collectives_test.cc"
#include "cc/runtime/core_order_test.cc"
#include "cc/runtime/join_launch_test.cc"
#include "cc/runtime/kernel_custom_call_test.cc"
#include "cc/runtime/launch_ids_test.cc"
#include "cc/runtime/launch_test.cc"
#include "cc/runtime/padding_stats_test.cc"
#include "cc/runtime/program_cache_test.cc"
#include "cc/runtime/program_test.cc"
#include "cc/runtime/step_test.cc"
#include "cc/runtime/step_transfers_test.cc"
#include "cc/runtime/target_programs_test.cc"
// NOLINTEND(bugprone-suspicious-include)
