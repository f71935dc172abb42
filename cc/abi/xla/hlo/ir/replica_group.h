// The wheel's own header; for 2.19 and 2.20, the header that has its classes there.
#ifndef TF_TPU_EXT_CC_ABI_XLA_HLO_IR_REPLICA_GROUP_H_
#define TF_TPU_EXT_CC_ABI_XLA_HLO_IR_REPLICA_GROUP_H_

#if __has_include_next("xla/hlo/ir/replica_group.h")
#include_next "xla/hlo/ir/replica_group.h"
#else
#include "xla/hlo/ir/collective_device_list.h"
#endif

#endif  // TF_TPU_EXT_CC_ABI_XLA_HLO_IR_REPLICA_GROUP_H_
