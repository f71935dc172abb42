// All sources of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/plugin/plugin.cc"
// NOLINTEND(bugprone-suspicious-include)
