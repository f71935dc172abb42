// For tests: the hosts of a pod, all in this process.
#ifndef TF_TPU_EXT_CC_PODS_POD_TESTING_H_
#define TF_TPU_EXT_CC_PODS_POD_TESTING_H_

#include <cstdint>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "cc/base/pod_shape.h"
#include "cc/pods/pod.h"

namespace tf_tpu_ext {

// How errors name the host.
inline std::string TaskOfHost(int host) {
  return absl::StrCat("/job:worker/replica:0/task:", host);
}

// The pod as one of its hosts knows it.
inline Pod MakePod(int hosts, int cores_per_host, int host) {
  Pod pod;
  pod.shape.hosts = hosts;
  pod.shape.host = Host(host);
  pod.shape.cores_per_host = cores_per_host;
  for (int i = 0; i < hosts; ++i) {
    pod.members.Add({absl::StrCat(TaskOfHost(i), "/device:CPU:0"), 100 + static_cast<uint64_t>(i)});
  }
  return pod;
}

inline std::set<Host> HostsOfPod(const Pod& pod) {
  std::set<Host> hosts;
  for (Host host : pod.members.numbers()) hosts.insert(host);
  return hosts;
}

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PODS_POD_TESTING_H_
