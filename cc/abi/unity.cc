// All sources of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/abi/absl/log_message.cc"
// NOLINTEND(bugprone-suspicious-include)
