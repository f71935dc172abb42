// All tests of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/compiler/lower/cluster_marks_test.cc"
#include "cc/compiler/lower/host_transfer_order_test.cc"
#include "cc/compiler/lower/lower_module_test.cc"
#include "cc/compiler/lower/module_calls_test.cc"
#include "cc/compiler/lower/op_lines_test.cc"
#include "cc/compiler/lower/rewrite_functions_test.cc"
#include "cc/compiler/lower/updated_arguments_test.cc"
// NOLINTEND(bugprone-suspicious-include)
