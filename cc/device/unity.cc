// All sources of this room, to compile together: `tools/lint --fix` writes this.
#include "cc/device/device_factory.cc"
#include "cc/device/topology.cc"
#include "cc/device/virtual_device.cc"
