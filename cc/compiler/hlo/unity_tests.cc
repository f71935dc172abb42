// All tests of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/compiler/hlo/collective_order_test.cc"
#include "cc/compiler/hlo/collective_patterns_test.cc"
#include "cc/compiler/hlo/computation_cost_test.cc"
#include "cc/compiler/hlo/cut_chains_test.cc"
#include "cc/compiler/hlo/cut_sums_test.cc"
#include "cc/compiler/hlo/insert_probes_test.cc"
#include "cc/compiler/hlo/matmul_precision_test.cc"
#include "cc/compiler/hlo/module_test.cc"
#include "cc/compiler/hlo/native_random_bits_test.cc"
#include "cc/compiler/hlo/padded_arguments_test.cc"
#include "cc/compiler/hlo/product_kernels_test.cc"
#include "cc/compiler/hlo/purity_test.cc"
#include "cc/compiler/hlo/skip_computation_test.cc"
#include "cc/compiler/hlo/static_results_test.cc"
#include "cc/compiler/hlo/sum_in_products_test.cc"
// NOLINTEND(bugprone-suspicious-include)
