// All sources of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/embedding/batch.cc"
#include "cc/embedding/configure_kernels.cc"
#include "cc/embedding/current_embedding.cc"
#include "cc/embedding/embedding_custom_calls.cc"
#include "cc/embedding/embedding_xla_kernels.cc"
#include "cc/embedding/engine.cc"
#include "cc/embedding/enqueue_kernels.cc"
#include "cc/embedding/layout.cc"
#include "cc/embedding/quantization.cc"
#include "cc/embedding/row_optimizer.cc"
#include "cc/embedding/state_kernels.cc"
#include "cc/embedding/update_program.cc"
// NOLINTEND(bugprone-suspicious-include)
