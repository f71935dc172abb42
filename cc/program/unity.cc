// All sources of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/program/chain_cut.cc"
#include "cc/program/dynamic_dimensions.cc"
#include "cc/program/embedding_call.cc"
#include "cc/program/host_call.cc"
#include "cc/program/kernel_call.cc"
#include "cc/program/lowering.cc"
#include "cc/program/pack.cc"
#include "cc/program/padded_argument.cc"
#include "cc/program/probe_call.cc"
#include "cc/program/program_key.cc"
#include "cc/program/random_bits.cc"
#include "cc/program/sparse_core_call.cc"
#include "cc/program/traced_options.cc"
#include "cc/program/transfer_call.cc"
// NOLINTEND(bugprone-suspicious-include)
