#include "cc/pods/host_links.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "cc/base/memory.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/lib/core/refcount.h"
#include "tensorflow/core/platform/errors.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Rendezvous;
using tensorflow::Tensor;

// Precedes the bytes of a message, which stay aligned.
struct Header {
  int64_t bytes = 0;
  // Padded with zeros, or truncated.
  char what[56] = {};
};
constexpr int64_t kHeaderBytes = sizeof(Header);
static_assert(kHeaderBytes == 64);

// The largest piece that TensorFlow sends at once: far below the 2 GB limit of its messages, and
// large enough that the number of pieces costs nothing.
constexpr int64_t kPartBytes = int64_t{32} << 20;
// More memory than any machine has.
constexpr int64_t kMostBytes = int64_t{1} << 50;

Header HeaderOf(absl::string_view what, int64_t bytes) {
  Header header;
  header.bytes = bytes;
  std::memcpy(header.what, what.data(), std::min(what.size(), sizeof(header.what)));
  return header;
}

std::string TextOf(const Header& header) {
  return std::string(header.what, strnlen(header.what, sizeof(header.what)));
}

int64_t NumParts(int64_t bytes) {
  return std::max<int64_t>(1, (bytes + kPartBytes - 1) / kPartBytes);
}

// One exchange in progress. Its parts may arrive on any thread.
struct Meeting {
  const std::string name;
  // The rest is guarded by the links' mutex until `end` is set.
  std::set<Host> missing;
  HostLinks::Messages received;
  std::optional<absl::Status> end;
  // Null as long as the exchange is only expected, and nothing waits for it.
  HostLinks::Done done;
  absl::Time since;
};

class RendezvousLinks : public HostLinks, public std::enable_shared_from_this<RendezvousLinks> {
 public:
  RendezvousLinks(Pod pod, std::set<Host> hosts, std::string launch,
                  tensorflow::FrameAndIter iteration, tensorflow::RendezvousInterface* rendezvous,
                  std::function<void(std::function<void()>)> schedule, HostTraffic* traffic)
      : HostLinks(std::move(pod), std::move(hosts)),
        launch_(std::move(launch)),
        iteration_(iteration),
        rendezvous_(*rendezvous),
        schedule_(std::move(schedule)),
        traffic_(traffic) {
    // Most are reference-counted: such a rendezvous lives until the last part has arrived.
    if (auto* counted = dynamic_cast<Rendezvous*>(rendezvous)) {
      counted->Ref();
      kept_.reset(counted);
    }
  }

  void Exchange(const std::string& name, const Messages& sent, const std::set<Host>& from,
                Done done) override {
    absl::Status status = Aborted();
    for (const auto& [host, message] : sent) {
      if (!status.ok()) break;
      status = SendTo(host, name, message.tensor());
      if (!status.ok()) {
        status = absl::Status(status.code(), absl::StrCat("Nothing can be sent to ", NameOf(host),
                                                          ": ", status.message()));
      }
    }
    if (!status.ok() || from.empty()) {
      return schedule_([done = std::move(done), status] {
        if (status.ok()) return done(Messages());
        done(status);
      });
    }
    Expect(name, from);
    std::shared_ptr<Meeting> meeting;
    {
      absl::MutexLock lock(&mutex_);
      const auto expected = expected_.find(name);
      meeting = std::move(expected->second);
      expected_.erase(expected);
      meeting->done = std::move(done);
      meeting->since = absl::Now();
      if (!meeting->end.has_value()) return;
    }
    Tell(meeting);
  }

  void Expect(const std::string& name, const std::set<Host>& from) override {
    auto meeting = std::make_shared<Meeting>(Meeting{name, from});
    {
      absl::MutexLock lock(&mutex_);
      if (!expected_.try_emplace(name, meeting).second) return;
      if (!aborted_.ok()) {
        meeting->end = aborted_;
        return;
      }
      meetings_.insert(meeting);
    }
    for (Host host : from) ReceiveFirst(host, meeting);
  }

  void Abort(const absl::Status& status) override {
    std::set<std::shared_ptr<Meeting>> meetings;
    {
      absl::MutexLock lock(&mutex_);
      if (!aborted_.ok()) return;
      aborted_ = status;
      meetings = meetings_;
    }
    for (const std::shared_ptr<Meeting>& meeting : meetings) End(meeting, status);
    // Without a lock, because TensorFlow ends what it is still waiting for inside this call.
    cancellation_.StartCancel();
  }

  std::string Describe(absl::Duration age) const override {
    std::string description;
    absl::MutexLock lock(&mutex_);
    for (const std::shared_ptr<Meeting>& meeting : meetings_) {
      if (meeting->done == nullptr || absl::Now() - meeting->since < age) continue;
      absl::StrAppend(&description, NameOfHost(pod().here()), " waits in ", meeting->name, " for ",
                      absl::StrJoin(meeting->missing, ", ",
                                    [this](std::string* out, Host host) {
                                      absl::StrAppend(out, NameOf(host));
                                    }),
                      "; ");
    }
    return description;
  }

 private:
  absl::StatusOr<Rendezvous::ParsedKey> KeyOf(Host from, Host to, absl::string_view name,
                                              int64_t part) const {
    const Pod::Member& sender = pod().members[from];
    Rendezvous::ParsedKey key;
    TF_RETURN_IF_ERROR(Rendezvous::ParseKey(
        Rendezvous::CreateKey(sender.cpu, sender.incarnation, pod().members[to].cpu,
                              absl::StrCat("tpu_launch/", launch_, "/", name, "/", part),
                              iteration_),
        &key));
    return key;
  }

  absl::Status SendTo(Host host, const std::string& name, const Tensor& message) {
    for (int64_t part = 0; part < NumParts(message.NumElements()); ++part) {
      TF_ASSIGN_OR_RETURN(const auto key, KeyOf(shape().host, host, name, part));
      const int64_t begin = part * kPartBytes;
      const int64_t end = std::min(message.NumElements(), begin + kPartBytes);
      TF_RETURN_IF_ERROR(
          rendezvous_.Send(key, Rendezvous::Args(), message.Slice(begin, end), /*is_dead=*/false));
    }
    if (traffic_ != nullptr) traffic_->CountSent(message.NumElements());
    return absl::OkStatus();
  }

  void Receive(Host host, const std::shared_ptr<Meeting>& meeting, int64_t part,
               std::function<void(const Tensor&)> received) {
    auto key = KeyOf(host, shape().host, meeting->name, part);
    if (!key.ok()) return End(meeting, key.status());
    Rendezvous::Args args;
    args.cancellation_manager = &cancellation_;
    rendezvous_.RecvAsync(
        *key, args,
        [self = shared_from_this(), host, meeting, received = std::move(received)](
            const absl::Status& status, const Rendezvous::Args&, const Rendezvous::Args&,
            const Tensor& value, bool) {
          if (!status.ok()) {
            return self->End(
                meeting,
                absl::Status(status.code(), absl::StrCat(self->NameOf(host),
                                                         " sent nothing: ", status.message())));
          }
          received(value);
        });
  }

  void ReceiveFirst(Host host, const std::shared_ptr<Meeting>& meeting) {
    Receive(host, meeting, 0, [this, host, meeting](const Tensor& first) {
      Header header;
      if (first.dtype() != tensorflow::DT_UINT8 || first.NumElements() < kHeaderBytes) {
        return Complete(host, meeting, first);
      }
      std::memcpy(&header, first.data(), kHeaderBytes);
      // An impossible size is rejected by the receiver, which expects something else.
      const bool possible = header.bytes >= 0 && header.bytes <= kMostBytes;
      const int64_t parts = possible ? NumParts(kHeaderBytes + header.bytes) : 1;
      if (parts == 1) return Complete(host, meeting, first);
      ReceiveOthers(host, meeting, header, first, parts);
    });
  }

  void ReceiveOthers(Host host, const std::shared_ptr<Meeting>& meeting, const Header& header,
                     const Tensor& first, int64_t parts) {
    const HostMessage whole(TextOf(header), header.bytes);
    if (absl::Status status = whole.CheckMemory(); !status.ok()) return End(meeting, status);
    auto missing = std::make_shared<std::atomic<int64_t>>(parts);
    const auto take = [this, host, meeting, whole, missing](int64_t part, const Tensor& value) {
      const int64_t begin = part * kPartBytes;
      const int64_t size = std::min(kPartBytes, whole.tensor().NumElements() - begin);
      if (value.dtype() != tensorflow::DT_UINT8 || value.NumElements() != size) {
        return End(meeting, absl::DataLossError(absl::StrCat(
                                NameOf(host), " sent ", value.NumElements(), " bytes of part ",
                                part, " of ", meeting->name, "; expected ", size, ".")));
      }
      std::memcpy(static_cast<char*>(whole.tensor().data()) + begin, value.data(), size);
      if (missing->fetch_sub(1) == 1) Complete(host, meeting, whole.tensor());
    };
    take(0, first);
    for (int64_t part = 1; part < parts; ++part) {
      Receive(host, meeting, part, [take, part](const Tensor& value) { take(part, value); });
    }
  }

  absl::Status Aborted() const {
    absl::MutexLock lock(&mutex_);
    return aborted_;
  }

  void Complete(Host host, const std::shared_ptr<Meeting>& meeting, const Tensor& message) {
    {
      absl::MutexLock lock(&mutex_);
      if (meetings_.count(meeting) == 0) return;
      meeting->received[host] = HostMessage(message);
      meeting->missing.erase(host);
      if (!meeting->missing.empty()) return;
    }
    End(meeting, absl::OkStatus());
  }

  // Only the first call for a meeting counts.
  void End(const std::shared_ptr<Meeting>& meeting, const absl::Status& status) {
    {
      absl::MutexLock lock(&mutex_);
      if (meetings_.erase(meeting) == 0) return;
      meeting->end = status;
      if (meeting->done == nullptr) return;  // the exchange comes later
    }
    Tell(meeting);
  }

  void Tell(const std::shared_ptr<Meeting>& meeting) {
    if (traffic_ != nullptr) traffic_->CountWait(absl::Now() - meeting->since);
    schedule_([meeting] {
      const HostLinks::Done done = std::move(meeting->done);
      if (!meeting->end->ok()) return done(*meeting->end);
      done(std::move(meeting->received));
    });
  }

  const std::string launch_;
  const tensorflow::FrameAndIter iteration_;
  tensorflow::RendezvousInterface& rendezvous_;
  tensorflow::core::RefCountPtr<Rendezvous> kept_;
  const std::function<void(std::function<void()>)> schedule_;
  HostTraffic* const traffic_;
  tensorflow::CancellationManager cancellation_;
  mutable absl::Mutex mutex_;
  absl::Status aborted_ ABSL_GUARDED_BY(mutex_);
  // What is expected, but has not been asked for yet.
  std::map<std::string, std::shared_ptr<Meeting>> expected_ ABSL_GUARDED_BY(mutex_);
  // Contains each meeting until its end has been decided.
  std::set<std::shared_ptr<Meeting>> meetings_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

HostMessage::HostMessage(absl::string_view what, int64_t bytes)
    : tensor_(tensorflow::cpu_allocator(), tensorflow::DT_UINT8,
              tensorflow::TensorShape({kHeaderBytes + bytes})) {
  if (!CheckMemory().ok()) return;
  const Header header = HeaderOf(what, bytes);
  std::memcpy(tensor_.data(), &header, kHeaderBytes);
}

absl::Status HostMessage::CheckMemory() const {
  return tf_tpu_ext::CheckMemory(tensor_, "A collective over several hosts",
                                 "what one host sends another");
}

absl::Status HostMessage::Check(absl::string_view what, int64_t bytes,
                                absl::string_view sender) const {
  Header header;
  if (tensor_.dtype() != tensorflow::DT_UINT8 || tensor_.NumElements() < kHeaderBytes) {
    return absl::DataLossError(
        absl::StrCat(sender, " sent ", tensor_.DebugString(), ", which is no message of a host."));
  }
  std::memcpy(&header, tensor_.data(), kHeaderBytes);
  const Header expected = HeaderOf(what, bytes);
  if (std::memcmp(&header, &expected, kHeaderBytes) == 0 &&
      tensor_.NumElements() == kHeaderBytes + bytes) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "The hosts meet in different collectives: ", sender, " is in ", TextOf(header), " with ",
      header.bytes, " bytes for this host, which is in ", what, " and expects ", bytes,
      ". Every replica must run the same collectives, on values of the same shape and type, in the "
      "same order."));
}

char* HostMessage::data() { return static_cast<char*>(tensor_.data()) + kHeaderBytes; }
const char* HostMessage::data() const {
  return static_cast<const char*>(tensor_.data()) + kHeaderBytes;
}

std::set<Host> HostLinks::others() const {
  std::set<Host> others = hosts_;
  others.erase(shape().host);
  return others;
}

bool HostLinks::IsOther(const std::string& task) const {
  const std::set<Host> others = this->others();
  return std::any_of(others.begin(), others.end(), [&](Host host) { return NameOf(host) == task; });
}

std::shared_ptr<HostLinks> MakeHostLinks(Pod pod, std::set<Host> hosts, std::string launch,
                                         tensorflow::FrameAndIter iteration,
                                         tensorflow::RendezvousInterface* rendezvous,
                                         std::function<void(std::function<void()>)> schedule,
                                         HostTraffic* traffic) {
  return std::make_shared<RendezvousLinks>(std::move(pod), std::move(hosts), std::move(launch),
                                           iteration, rendezvous, std::move(schedule), traffic);
}

}  // namespace tf_tpu_ext
