// Where the other hosts of a pod listen, as the program that uses them has told.
#ifndef TF_TPU_EXT_CC_PODS_ENDPOINTS_H_
#define TF_TPU_EXT_CC_PODS_ENDPOINTS_H_

#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tf_tpu_ext {

// Ends this process's connections to "name:port", and returns how many there were. What waits for
// an answer on them then gets an error: TensorFlow waits without a limit for a host that has
// stopped without closing its connections.
int CutConnections(const std::string& address);

// Thread-safe.
class Endpoints {
 public:
  // The address "name:port" of a task such as "/job:worker/replica:0/task:1".
  void Note(const std::string& task, const std::string& address);

  // Cuts the connections to the task, if its address is known.
  void Cut(const std::string& task) const;

 private:
  mutable absl::Mutex mutex_;
  std::map<std::string, std::string> addresses_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PODS_ENDPOINTS_H_
