// How the hosts of one launch talk to each other.
#ifndef TF_TPU_EXT_CC_PODS_HOST_LINKS_H_
#define TF_TPU_EXT_CC_PODS_HOST_LINKS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "cc/base/pod_shape.h"
#include "cc/pods/host_traffic.h"
#include "cc/pods/pod.h"
#include "tensorflow/core/framework/control_flow.h"
#include "tensorflow/core/framework/rendezvous.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {

// Bytes for another host, and what they are, so that hosts that expect something else notice.
class HostMessage {
 public:
  HostMessage() = default;
  // One with room for so many bytes, to be filled in. Not ok() if there is no memory for them.
  HostMessage(absl::string_view what, int64_t bytes);
  // What another host has sent.
  explicit HostMessage(tensorflow::Tensor received) : tensor_(std::move(received)) {}

  absl::Status CheckMemory() const;
  // Whether it is of this kind and size, and complete; `sender` is what the error calls it.
  absl::Status Check(absl::string_view what, int64_t bytes, absl::string_view sender) const;
  char* data();
  const char* data() const;
  const tensorflow::Tensor& tensor() const { return tensor_; }

 private:
  // A header, and then the bytes.
  tensorflow::Tensor tensor_;
};

// Thread-safe. Virtual is what tests replace.
class HostLinks {
 public:
  using Messages = std::map<Host, HostMessage>;
  using Done = std::function<void(absl::StatusOr<Messages>)>;

  // `hosts` are those of the pod that run the program, this one among them.
  HostLinks(Pod pod, std::set<Host> hosts) : pod_(std::move(pod)), hosts_(std::move(hosts)) {}
  virtual ~HostLinks() = default;

  const Pod& pod() const { return pod_; }
  const PodShape& shape() const { return pod_.shape; }
  const std::set<Host>& hosts() const { return hosts_; }
  std::set<Host> others() const;
  // Whether a task such as "/job:worker/replica:0/task:1" is one of them.
  bool IsOther(const std::string& task) const;
  std::string NameOf(Host host) const { return NameOfHost(pod_.members[host]); }

  // Sends the messages, and gives `done` one from each of the hosts `from`, on a thread that it may
  // keep. The hosts meet by the name, which none uses twice.
  virtual void Exchange(const std::string& name, const Messages& sent, const std::set<Host>& from,
                        Done done) = 0;

  // Begins to receive what a later Exchange of that name asks for, so that it need not wait for the
  // way there and back.
  virtual void Expect(const std::string& /*name*/, const std::set<Host>& /*from*/) {}

  // Fails the exchanges of now and of later.
  virtual void Abort(const absl::Status& status) = 0;

  // Which hosts have let this one wait for at least `age`; empty if none has.
  virtual std::string Describe(absl::Duration age) const = 0;

 private:
  const Pod pod_;
  const std::set<Host> hosts_;
};

// Through the rendezvous of the step, TensorFlow's own way between its workers: it fails when the
// step does, or a worker. `launch` tells the launches of the step apart, and `iteration` the rounds
// of a loop around them; all hosts know them. `schedule` runs what may take long.
std::shared_ptr<HostLinks> MakeHostLinks(Pod pod, std::set<Host> hosts, std::string launch,
                                         tensorflow::FrameAndIter iteration,
                                         tensorflow::RendezvousInterface* rendezvous,
                                         std::function<void(std::function<void()>)> schedule,
                                         HostTraffic* traffic = nullptr);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PODS_HOST_LINKS_H_
