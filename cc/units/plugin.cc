// All rooms of this unit, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/plugin/unity.cc"
// NOLINTEND(bugprone-suspicious-include)
