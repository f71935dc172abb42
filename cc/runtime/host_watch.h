// Notices that another host of a pod has stopped, or can't be reached any more.
#ifndef TF_TPU_EXT_CC_RUNTIME_HOST_WATCH_H_
#define TF_TPU_EXT_CC_RUNTIME_HOST_WATCH_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cc/base/wait_monitor.h"
#include "cc/pods/endpoints.h"
#include "cc/pods/host_links.h"

namespace tf_tpu_ext {

// Asks the other hosts of launches that last for signs of life. Thread-safe.
class HostWatch {
 public:
  using Lost = std::function<void(const absl::Status&)>;

  // `limit` is how long a host may give no sign; `run` is as for WaitMonitor.
  HostWatch(std::function<absl::Duration()> limit, Endpoints* endpoints,
            std::function<void(std::function<void()>)> run);

  // A launch that is watched, until nobody refers to this.
  class Watch;

  // Calls `lost`, at most once and on some thread, when one of the other hosts is lost.
  std::shared_ptr<Watch> Begin(std::shared_ptr<HostLinks> links, Lost lost);

 private:
  const std::function<absl::Duration()> limit_;
  Endpoints& endpoints_;
  WaitMonitor monitor_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_HOST_WATCH_H_
