// All tests of this room, to compile together: `tools/lint --fix` writes this.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "cc/sparse_core/coo_test.cc"
#include "cc/sparse_core/csr_test.cc"
#include "cc/sparse_core/minibatch_splits_test.cc"
#include "cc/sparse_core/sharded_table_test.cc"
#include "cc/sparse_core/sorted_ids_test.cc"
// NOLINTEND(bugprone-suspicious-include)
