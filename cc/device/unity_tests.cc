// All tests of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/device/topology_test.cc"
#include "cc/device/virtual_device_test.cc"
// NOLINTEND(bugprone-suspicious-include)
