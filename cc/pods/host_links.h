// How the hosts of a launch talk to each other.
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

// Bytes for another host, with a description, so that hosts that expect something else notice.
class HostMessage {
 public:
  HostMessage() = default;
  // A message with room for `bytes` bytes, to be filled in. CheckMemory() fails if there is no
  // memory for them.
  HostMessage(absl::string_view what, int64_t bytes);
  // A message that another host has sent.
  explicit HostMessage(tensorflow::Tensor received) : tensor_(std::move(received)) {}

  absl::Status CheckMemory() const;
  // Checks that the message is complete and of this kind and size; `sender` names it in the error.
  absl::Status Check(absl::string_view what, int64_t bytes, absl::string_view sender) const;
  char* data();
  const char* data() const;
  const tensorflow::Tensor& tensor() const { return tensor_; }

 private:
  // A header, followed by the bytes.
  tensorflow::Tensor tensor_;
};

// Thread-safe. Tests replace the virtual functions.
class HostLinks {
 public:
  using Messages = std::map<Host, HostMessage>;
  using Done = std::function<void(absl::StatusOr<Messages>)>;

  // `hosts` are the hosts of the pod that run the program, including this one.
  HostLinks(Pod pod, std::set<Host> hosts) : pod_(std::move(pod)), hosts_(std::move(hosts)) {}
  virtual ~HostLinks() = default;

  const Pod& pod() const { return pod_; }
  const PodShape& shape() const { return pod_.shape; }
  const std::set<Host>& hosts() const { return hosts_; }
  std::set<Host> others() const;
  // Whether a task such as "/job:worker/replica:0/task:1" is one of the other hosts.
  bool IsOther(const std::string& task) const;
  std::string NameOf(Host host) const { return NameOfHost(pod_.members[host]); }

  // Sends the messages, and passes `done` one message from each host in `from`, on a thread that
  // `done` may keep. The hosts meet by the name, which none uses twice.
  virtual void Exchange(const std::string& name, const Messages& sent, const std::set<Host>& from,
                        Done done) = 0;

  // Begins to receive what a later Exchange of that name asks for, which saves it the round trip.
  virtual void Expect(const std::string& /*name*/, const std::set<Host>& /*from*/) {}

  // Fails current and later exchanges.
  virtual void Abort(const absl::Status& status) = 0;

  // Says which hosts have kept this one waiting for at least `age`; empty if none has.
  virtual std::string Describe(absl::Duration age) const = 0;

 private:
  const Pod pod_;
  const std::set<Host> hosts_;
};

// Makes links that use the step's rendezvous, TensorFlow's own channel between its workers: it
// fails when the step or a worker does. `launch` distinguishes the launches of the step, and
// `iteration` the iterations of a loop around them; all hosts know both. `schedule` runs what may
// take long.
std::shared_ptr<HostLinks> MakeHostLinks(Pod pod, std::set<Host> hosts, std::string launch,
                                         tensorflow::FrameAndIter iteration,
                                         tensorflow::RendezvousInterface* rendezvous,
                                         std::function<void(std::function<void()>)> schedule,
                                         HostTraffic* traffic = nullptr);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PODS_HOST_LINKS_H_
