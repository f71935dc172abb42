// All tests of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/compiler/build/compilation_cache_test.cc"
#include "cc/compiler/build/program_description_test.cc"
#include "cc/compiler/build/program_notes_test.cc"
#include "cc/compiler/build/program_source_test.cc"
#include "cc/compiler/build/xla_build_test.cc"
#include "cc/compiler/build/xla_compiler_test.cc"
// NOLINTEND(bugprone-suspicious-include)
