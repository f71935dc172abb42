// All rooms of this unit, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/compiler/build/unity.cc"
#include "cc/compiler/hlo/unity.cc"
#include "cc/compiler/lower/unity.cc"
#include "cc/compiler/overrides/unity.cc"
#include "cc/compiler/replicas/unity.cc"
#include "cc/compiler/xla_kernels/unity.cc"
// NOLINTEND(bugprone-suspicious-include)
