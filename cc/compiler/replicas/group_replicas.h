// Decides how many replicas run as one program.
#ifndef TF_TPU_EXT_CC_COMPILER_REPLICAS_GROUP_REPLICAS_H_
#define TF_TPU_EXT_CC_COMPILER_REPLICAS_GROUP_REPLICAS_H_

#include "absl/status/statusor.h"
#include "cc/compiler/replicas/batch_replicas.h"
#include "xla/hlo/ir/hlo_module.h"

namespace tf_tpu_ext {

// How many replicas run as one program: with `num_processors` processors there remain as many
// groups or, where they can't be equal, somewhat more.
int GroupSize(int num_replicas, int num_processors);

// Batches as many replicas as the processors ask for: all of them if loops compute less that
// belongs to single replicas than what is the same for all, such as the new weights, and would be
// computed by each group. An error also if groups would save next to nothing.
absl::StatusOr<BatchedModule> GroupReplicas(const xla::HloModule& module, BatchOptions options,
                                            int num_processors);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_REPLICAS_GROUP_REPLICAS_H_
