// All sources of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/compiler/lower/cluster_marks.cc"
#include "cc/compiler/lower/host_transfer_order.cc"
#include "cc/compiler/lower/lower_module.cc"
#include "cc/compiler/lower/module_calls.cc"
#include "cc/compiler/lower/module_locations.cc"
#include "cc/compiler/lower/module_places.cc"
#include "cc/compiler/lower/op_lines.cc"
#include "cc/compiler/lower/rewrite_functions.cc"
#include "cc/compiler/lower/updated_arguments.cc"
// NOLINTEND(bugprone-suspicious-include)
