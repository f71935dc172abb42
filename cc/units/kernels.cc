// All rooms of this unit, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/describe/unity.cc"
#include "cc/kernels/unity.cc"
#include "cc/passes/unity.cc"
// NOLINTEND(bugprone-suspicious-include)
