// All sources of this room, to compile together: `tools/lint --fix` writes this.
#include "cc/data/autotune_loop.cc"
#include "cc/data/cloud_storage.cc"
#include "cc/data/imported_function.cc"
#include "cc/data/paced_loop.cc"
