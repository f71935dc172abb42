// All tests of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/program/chain_cut_test.cc"
#include "cc/program/compiled_program_test.cc"
#include "cc/program/custom_calls_test.cc"
#include "cc/program/lowering_test.cc"
#include "cc/program/pack_test.cc"
#include "cc/program/program_key_test.cc"
#include "cc/program/random_bits_test.cc"
#include "cc/program/traced_options_test.cc"
// NOLINTEND(bugprone-suspicious-include)
