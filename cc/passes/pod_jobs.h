// The TPU workers of TensorFlow's cluster.
#ifndef TF_TPU_EXT_CC_PASSES_POD_JOBS_H_
#define TF_TPU_EXT_CC_PASSES_POD_JOBS_H_

#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "cc/base/number.h"
#include "cc/base/pod_shape.h"
#include "cc/pods/pod.h"
#include "tensorflow/core/common_runtime/device_set.h"
#include "tensorflow/core/util/device_name_utils.h"

namespace tf_tpu_ext {

// The hosts of one job, in task order.
struct PodJob {
  Pod pod;
  ByNumber<Host, tensorflow::DeviceNameUtils::ParsedName> names;
  ByNumber<Host, int> cores;

  std::optional<Host> HostOf(const tensorflow::DeviceNameUtils::ParsedName& device) const;
  // Returns an error unless all hosts have the same number of cores.
  absl::Status CheckCores() const;
  // The pod as one of its hosts sees it.
  Pod For(Host host) const;
};

// By job name; only jobs with several hosts.
std::map<std::string, PodJob> PodJobsOf(const tensorflow::DeviceSet& devices);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PASSES_POD_JOBS_H_
