// What a custom call in a running program can find out about where it runs.
#ifndef TF_TPU_EXT_CC_BASE_CORE_CONTEXT_H_
#define TF_TPU_EXT_CC_BASE_CORE_CONTEXT_H_

#include "cc/base/core_numbers.h"
#include "cc/base/launch_numbers.h"

namespace tf_tpu_ext {

class HostCalls;
class HostOrder;
class StepCheck;

struct CoreContext {
  LaunchId launch_id;
  RunId run_id;
  Core core;
  // The number by which XLA knows the core. A run sets it.
  Core core_in_pod;
  Slot slot;
  Replica replica;
  // The physical cores of a group of replicas that run as one program, this core first; otherwise
  // null.
  const Core* group_cores = nullptr;
  // Null unless the program calls functions on the host.
  HostCalls* host_calls = nullptr;
  // Null unless the program is watched.
  StepCheck* check = nullptr;
  HostOrder* host_order = nullptr;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_CORE_CONTEXT_H_
