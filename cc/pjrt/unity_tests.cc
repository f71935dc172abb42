// All tests of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/pjrt/compile_only_test.cc"
#include "cc/pjrt/plugin_test.cc"
// NOLINTEND(bugprone-suspicious-include)
