// All sources of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/data/autotune_loop.cc"
#include "cc/data/cloud_storage.cc"
#include "cc/data/element_layout.cc"
#include "cc/data/element_slots.cc"
#include "cc/data/imported_function.cc"
#include "cc/data/paced_loop.cc"
#include "cc/data/pipeline.cc"
#include "cc/data/pipeline_channel.cc"
// NOLINTEND(bugprone-suspicious-include)
