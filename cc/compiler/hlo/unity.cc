// All sources of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/compiler/hlo/collective_order.cc"
#include "cc/compiler/hlo/collective_patterns.cc"
#include "cc/compiler/hlo/computation_cost.cc"
#include "cc/compiler/hlo/cut_chains.cc"
#include "cc/compiler/hlo/dynamic_values.cc"
#include "cc/compiler/hlo/insert_probes.cc"
#include "cc/compiler/hlo/matmul_precision.cc"
#include "cc/compiler/hlo/module.cc"
#include "cc/compiler/hlo/native_random_bits.cc"
#include "cc/compiler/hlo/padded_arguments.cc"
#include "cc/compiler/hlo/partition_probes.cc"
#include "cc/compiler/hlo/purity.cc"
#include "cc/compiler/hlo/skip_computation.cc"
#include "cc/compiler/hlo/static_results.cc"
#include "cc/compiler/hlo/sum_in_products.cc"
// NOLINTEND(bugprone-suspicious-include)
