// All tests of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/pods/connections_test.cc"
#include "cc/pods/endpoints_test.cc"
#include "cc/pods/host_links_test.cc"
#include "cc/pods/pod_test.cc"
// NOLINTEND(bugprone-suspicious-include)
