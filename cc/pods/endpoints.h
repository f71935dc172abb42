// Where the other hosts of a pod listen, according to the program that uses them.
#ifndef TF_TPU_EXT_CC_PODS_ENDPOINTS_H_
#define TF_TPU_EXT_CC_PODS_ENDPOINTS_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tf_tpu_ext {

// Also watches them, from a thread that starts with the first: TensorFlow's calls to another host
// have no time limit, and some are made while holding Python's lock. A host that gives no sign of
// life loses its connections to this process, which ends such calls, until it gives one.
// (TensorFlow's own check of a host's health uses freed memory after a context has been updated.)
// Thread-safe.
class Endpoints {
 public:
  // `limit` is how long a host may give no sign of life.
  explicit Endpoints(std::function<absl::Duration()> limit);
  ~Endpoints();
  Endpoints(const Endpoints&) = delete;
  Endpoints& operator=(const Endpoints&) = delete;

  // Notes the address, "name:port", of a task such as "/job:worker/replica:0/task:1".
  void Note(const std::string& task, const std::string& address);

  using Lost = std::function<void(const std::string& task, const absl::Status& why)>;

  // Calls `lost` before a host loses its connections, for as long as something refers to the
  // result. `lost` must not wait.
  std::shared_ptr<const Lost> Listen(Lost lost);

 private:
  void Watch();
  void Cut(const std::string& task, const std::string& address, const absl::Status& why);

  const std::function<absl::Duration()> limit_;
  absl::Mutex mutex_;
  std::map<std::string, std::string> addresses_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<const Lost>> listening_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  // Written under the lock by the first call to Note, joined by the destructor.
  std::thread watch_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PODS_ENDPOINTS_H_
