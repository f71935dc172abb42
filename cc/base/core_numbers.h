// How the cores of the machine and those of a program are numbered.
#ifndef TF_TPU_EXT_CC_BASE_CORE_NUMBERS_H_
#define TF_TPU_EXT_CC_BASE_CORE_NUMBERS_H_

#include "cc/base/number.h"

namespace tf_tpu_ext {

// A physical core of the machine: the i of /device:TPU:i.
using Core = Number<class CoreTag>;
// A replica of a program.
using Replica = Number<class ReplicaTag>;
// A core within its replica; in XLA's terms, a partition.
using LogicalCore = Number<class LogicalCoreTag>;
// A core of a program: replica * cores per replica + logical core.
using Slot = Number<class SlotTag>;
// A run of an executable within a step. It serves one slot, or several consecutive ones: those of a
// replica, or of a group of replicas.
using StepRun = Number<class StepRunTag>;

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_CORE_NUMBERS_H_
