// All tests of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/embedding/batch_test.cc"
#include "cc/embedding/embedding_custom_calls_test.cc"
#include "cc/embedding/embedding_ops_test.cc"
#include "cc/embedding/embedding_xla_kernels_test.cc"
#include "cc/embedding/engine_test.cc"
#include "cc/embedding/enqueue_kernels_test.cc"
#include "cc/embedding/layout_test.cc"
#include "cc/embedding/quantization_test.cc"
#include "cc/embedding/row_optimizer_test.cc"
#include "cc/embedding/update_program_test.cc"
// NOLINTEND(bugprone-suspicious-include)
