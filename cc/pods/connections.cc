#include "cc/pods/connections.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <set>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"

namespace tf_tpu_ext {
namespace {

// What an HTTP/2 client sends first: the preface, and an empty SETTINGS frame. A server answers
// with its own SETTINGS.
constexpr absl::string_view kGreeting(
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    "\0\0\0\4\0\0\0\0\0",
    33);

using Resolved = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Null if the address can't be resolved.
Resolved Resolve(const std::string& address) {
  Resolved resolved(nullptr, freeaddrinfo);
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return resolved;
  std::string name = address.substr(0, colon);
  if (name.size() > 2 && name.front() == '[') name = name.substr(1, name.size() - 2);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(name.c_str(), address.c_str() + colon + 1, &hints, &found) == 0) {
    resolved.reset(found);
  }
  return resolved;
}

// An IPv6 address, which can represent an IPv4 address too, and a port.
using Place = std::pair<std::string, int>;

Place PlaceOf(const sockaddr* address) {
  if (address->sa_family == AF_INET6) {
    const auto* six = reinterpret_cast<const sockaddr_in6*>(address);
    return {std::string(reinterpret_cast<const char*>(&six->sin6_addr), sizeof(six->sin6_addr)),
            ntohs(six->sin6_port)};
  }
  if (address->sa_family != AF_INET) return {};
  const auto* four = reinterpret_cast<const sockaddr_in*>(address);
  std::string mapped(10, '\0');
  mapped += "\xff\xff";
  mapped.append(reinterpret_cast<const char*>(&four->sin_addr), sizeof(four->sin_addr));
  return {std::move(mapped), ntohs(four->sin_port)};
}

std::set<Place> PlacesOf(const std::string& address) {
  std::set<Place> places;
  const Resolved resolved = Resolve(address);
  for (const addrinfo* one = resolved.get(); one != nullptr; one = one->ai_next) {
    places.insert(PlaceOf(one->ai_addr));
  }
  return places;
}

// Waits until the socket can be read or written, or has failed.
absl::Status WaitFor(int socket, short event, absl::Time deadline) {
  while (true) {
    pollfd waited = {socket, event, 0};
    const absl::Duration left = std::max(deadline - absl::Now(), absl::ZeroDuration());
    const int ready = poll(&waited, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, "poll");
    if (absl::Now() >= deadline) return absl::DeadlineExceededError("no answer");
  }
}

absl::Status Greet(const addrinfo& place, absl::Time deadline) {
  const int server = socket(place.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (server < 0) return absl::ErrnoToStatus(errno, "socket");
  const absl::Cleanup closed = [server] { close(server); };
  if (connect(server, place.ai_addr, place.ai_addrlen) != 0 && errno != EINPROGRESS) {
    return absl::UnavailableError("nobody listens there");
  }
  if (absl::Status connected = WaitFor(server, POLLOUT, deadline); !connected.ok()) {
    return connected;
  }
  // A failed connection can't be written to.
  const ssize_t sent = send(server, kGreeting.data(), kGreeting.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(kGreeting.size())) {
    return absl::UnavailableError("nobody listens there");
  }
  if (absl::Status answered = WaitFor(server, POLLIN, deadline); !answered.ok()) return answered;
  char first;
  if (recv(server, &first, 1, 0) != 1) return absl::AbortedError("the connection was closed");
  return absl::OkStatus();
}

}  // namespace

int CutConnections(const std::string& address) {
  const std::set<Place> places = PlacesOf(address);
  if (places.empty()) return 0;
  int cut = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end;
       !error && entry != end; entry.increment(error)) {
    int file;
    if (!absl::SimpleAtoi(entry->path().filename().string(), &file)) continue;
    sockaddr_storage peer = {};
    socklen_t size = sizeof(peer);
    auto* const as_address = reinterpret_cast<sockaddr*>(&peer);
    if (getpeername(file, as_address, &size) != 0) continue;
    // Not closed: gRPC closes it when it sees the end.
    if (places.count(PlaceOf(as_address)) > 0 && shutdown(file, SHUT_RDWR) == 0) ++cut;
  }
  return cut;
}

absl::Status CheckAlive(const std::string& address, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  absl::Status status =
      absl::NotFoundError(absl::StrCat("'", address, "' is no address of a host"));
  // "localhost" has two addresses, and a server may listen on only one of them.
  const Resolved resolved = Resolve(address);
  for (const addrinfo* one = resolved.get(); one != nullptr; one = one->ai_next) {
    status = Greet(*one, deadline);
    if (status.ok() || absl::IsDeadlineExceeded(status)) break;
  }
  return status;
}

}  // namespace tf_tpu_ext
