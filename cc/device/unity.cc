// All sources of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/device/device_factory.cc"
#include "cc/device/topology.cc"
#include "cc/device/virtual_device.cc"
// NOLINTEND(bugprone-suspicious-include)
