// All sources of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/compiler/build/compilation_cache.cc"
#include "cc/compiler/build/program_description.cc"
#include "cc/compiler/build/program_notes.cc"
#include "cc/compiler/build/program_source.cc"
#include "cc/compiler/build/target_module.cc"
#include "cc/compiler/build/xla_build.cc"
#include "cc/compiler/build/xla_compiler.cc"
// NOLINTEND(bugprone-suspicious-include)
