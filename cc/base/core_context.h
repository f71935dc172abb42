// What a custom call inside a running program can learn of where it runs.
#ifndef TF_TPU_EXT_CC_BASE_CORE_CONTEXT_H_
#define TF_TPU_EXT_CC_BASE_CORE_CONTEXT_H_

#include <cstdint>

namespace tf_tpu_ext {

class HostCalls;

struct CoreContext {
  // Names one step of one program to the host's side of its transfers.
  int64_t launch_id = 0;
  // Names one run to the collectives.
  int64_t run_id = 0;
  // The physical core, and its place in the program: replica * cores per replica + logical core.
  int core = 0;
  int slot = 0;
  int replica = 0;
  // The physical cores of a group of replicas that run as one program, this core's first; else
  // null.
  const int* group_cores = nullptr;
  // Null unless the program calls functions on the host.
  HostCalls* host_calls = nullptr;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_CORE_CONTEXT_H_
