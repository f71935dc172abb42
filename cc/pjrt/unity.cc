// All sources of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/pjrt/compile_only.cc"
#include "cc/pjrt/plugin.cc"
// NOLINTEND(bugprone-suspicious-include)
