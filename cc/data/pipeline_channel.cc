#include "cc/data/pipeline_channel.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

// In the format of tf_tpu_ext/io/server/sending.py.
struct Message {
  enum Kind : int64_t { kElement = 1, kEnd = 2, kError = 3 };
  int64_t kind;
  int64_t slot;
  int64_t size;
};

// Sends a number together with open files.
template <size_t kFiles>
absl::Status SendFiles(int socket, int64_t number, const std::array<int, kFiles>& files) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(files))> control = {};
  iovec data = {&number, sizeof(number)};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(files));
  std::memcpy(CMSG_DATA(header), files.data(), sizeof(files));
  // A process that does not take requests must not block this one.
  if (sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    return absl::ErrnoToStatus(errno, "A process of a pipeline can't be asked for its elements");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PipelineChannel>> PipelineChannel::Open(int requests,
                                                                       int64_t iteration) {
  std::array<int, 2> ends;
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return absl::ErrnoToStatus(errno, "A pipeline's elements can't be asked for");
  }
  const OwnedFile theirs(ends[1]);
  TF_ASSIGN_OR_RETURN(std::shared_ptr<ElementSlots> slots,
                      ElementSlots::Create(OwnedFile(ends[0])));
  std::array<int, ElementSlots::kSlots + 1> files;
  files[0] = theirs.get();
  const std::array<int, ElementSlots::kSlots> elements = slots->files();
  std::copy(elements.begin(), elements.end(), files.begin() + 1);
  TF_RETURN_IF_ERROR(SendFiles(requests, iteration, files));
  return std::unique_ptr<PipelineChannel>(new PipelineChannel(std::move(slots)));
}

PipelineChannel::~PipelineChannel() {
  // Closing would not be enough: tensors keep the socket, and so may forks of this process.
  if (slots_->IsOwner()) shutdown(slots_->socket(), SHUT_RDWR);
}

absl::StatusOr<Received> PipelineChannel::Receive() {
  Message message;
  ssize_t size;
  do {
    size = recv(slots_->socket(), &message, sizeof(message), MSG_DONTWAIT);
  } while (size < 0 && errno == EINTR);
  Received received;
  if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return received;
  if (size <= 0) {
    received.kind = Received::kGone;
    ended_ = true;
    return received;
  }
  if (size == sizeof(message) && message.kind == Message::kElement) {
    received.kind = Received::kElement;
    TF_ASSIGN_OR_RETURN(received.element, slots_->TakeElement(message.slot, message.size));
  } else if (size == sizeof(message) && message.kind == Message::kError) {
    received.kind = Received::kError;
    TF_ASSIGN_OR_RETURN(received.error, slots_->TakeText(message.slot, message.size));
  } else if (size == sizeof(message) && message.kind == Message::kEnd) {
    received.kind = Received::kEnd;
    ended_ = true;
  } else {
    return absl::InternalError(absl::StrCat("The process of a pipeline has sent ", size,
                                            " bytes that are no message. Report this."));
  }
  return received;
}

}  // namespace tf_tpu_ext
