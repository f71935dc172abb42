// All sources of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/pods/connections.cc"
#include "cc/pods/endpoints.cc"
#include "cc/pods/host_links.cc"
#include "cc/pods/pod.cc"
// NOLINTEND(bugprone-suspicious-include)
