// Decides how many replicas run as one program.
#ifndef TF_TPU_EXT_CC_COMPILER_REPLICAS_GROUP_REPLICAS_H_
#define TF_TPU_EXT_CC_COMPILER_REPLICAS_GROUP_REPLICAS_H_

#include "absl/status/statusor.h"
#include "cc/compiler/replicas/batch_replicas.h"
#include "xla/hlo/ir/hlo_module.h"

namespace tf_tpu_ext {

// How many replicas run as one program. With `num_processors` processors there are as many groups,
// but at least two, and more if they could not be of equal size.
int GroupSize(int num_replicas, int num_processors);

// Batches as many replicas as suits the number of processors. It batches all of them if the work in
// loops that is the same for all, such as computing new weights, exceeds the work that differs
// between replicas, because each group would repeat the common work. Also returns an error if
// groups would save next to nothing.
absl::StatusOr<BatchedModule> GroupReplicas(const xla::HloModule& module, BatchOptions options,
                                            int num_processors);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_REPLICAS_GROUP_REPLICAS_H_
