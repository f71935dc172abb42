// All sources of this room, to compile together: `tools/lint --fix` writes this.
#include "cc/pjrt/compile_only.cc"
#include "cc/pjrt/plugin.cc"
