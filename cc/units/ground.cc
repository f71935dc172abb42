// All rooms of this unit, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/abi/unity.cc"
#include "cc/base/unity.cc"
#include "cc/data/unity.cc"
#include "cc/device/unity.cc"
#include "cc/ops/unity.cc"
#include "cc/pjrt/unity.cc"
#include "cc/pods/unity.cc"
#include "cc/program/unity.cc"
// NOLINTEND(bugprone-suspicious-include)
