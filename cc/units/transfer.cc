// All rooms of this unit, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/check/unity.cc"
#include "cc/embedding/unity.cc"
#include "cc/profile/unity.cc"
#include "cc/sparse_core/unity.cc"
#include "cc/transfer/unity.cc"
// NOLINTEND(bugprone-suspicious-include)
