// All tests of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/data/autotune_loop_test.cc"
#include "cc/data/cloud_storage_test.cc"
#include "cc/data/element_layout_test.cc"
#include "cc/data/imported_function_test.cc"
#include "cc/data/paced_loop_test.cc"
#include "cc/data/pipeline_test.cc"
// NOLINTEND(bugprone-suspicious-include)
