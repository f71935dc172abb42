// XLA:CPU's collectives over CollectiveTable: asynchronous, cancellable, and without the stock
// implementation's deadline that ends the process when one replica stays away.
#ifndef TF_TPU_EXT_CC_RUNTIME_COLLECTIVES_H_
#define TF_TPU_EXT_CC_RUNTIME_COLLECTIVES_H_

#include "cc/runtime/collective_table.h"

namespace xla::cpu {
class CpuCollectives;
}  // namespace xla::cpu

namespace tf_tpu_ext {

CollectiveTable& GetCollectiveTable();
xla::cpu::CpuCollectives* GetCollectives();

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_COLLECTIVES_H_
