#ifndef TF_TPU_EXT_CC_BASE_POD_SHAPE_H_
#define TF_TPU_EXT_CC_BASE_POD_SHAPE_H_

#include "cc/base/core_numbers.h"

namespace tf_tpu_ext {

// A host of a pod, numbered in task order.
using Host = Number<class HostTag>;

// How the cores of a pod are numbered: each host's cores follow those of the host before it. By
// default, the pod is this machine alone, where both numbers of a core are the same.
//
// A program's collectives know cores by their number in the pod. Everything else on a host knows
// them by the i of the host's /device:TPU:i.
struct PodShape {
  int hosts = 1;
  // The host of this process.
  Host host;
  // Used only if there are several hosts.
  int cores_per_host = 0;

  bool is_pod() const { return hosts > 1; }
  Host HostOf(Core in_pod) const {
    return is_pod() ? Host(in_pod.value() / cores_per_host) : Host(0);
  }
  bool IsHere(Core in_pod) const { return HostOf(in_pod) == host; }
  // For a core of this host.
  Core NumberHere(Core in_pod) const { return Core(in_pod.value() - FirstHere()); }
  Core NumberInPod(Core here) const { return Core(here.value() + FirstHere()); }

 private:
  int FirstHere() const { return is_pod() ? host.value() * cores_per_host : 0; }
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_POD_SHAPE_H_
