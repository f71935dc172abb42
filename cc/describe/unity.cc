// All sources of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/describe/describe.cc"
// NOLINTEND(bugprone-suspicious-include)
