// What this host has sent to other hosts, and how long it has waited for them.
#ifndef TF_TPU_EXT_CC_PODS_HOST_TRAFFIC_H_
#define TF_TPU_EXT_CC_PODS_HOST_TRAFFIC_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"

namespace tf_tpu_ext {

// Thread-safe.
class HostTraffic {
 public:
  void CountSent(int64_t bytes) {
    ++messages_;
    bytes_ += bytes;
  }
  void CountWait(absl::Duration wait) { microseconds_ += absl::ToInt64Microseconds(wait); }

  int64_t messages() const { return messages_; }
  int64_t bytes() const { return bytes_; }
  // The sum over all exchanges, several of which may wait at once.
  absl::Duration waited() const { return absl::Microseconds(microseconds_.load()); }

 private:
  std::atomic<int64_t> messages_{0};
  std::atomic<int64_t> bytes_{0};
  std::atomic<int64_t> microseconds_{0};
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PODS_HOST_TRAFFIC_H_
