#include "cc/pods/endpoints.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <filesystem>
#include <memory>
#include <set>
#include <system_error>
#include <utility>

#include "absl/log/log.h"
#include "absl/strings/numbers.h"

namespace tf_tpu_ext {
namespace {

// An IPv6 address, in which form an IPv4 address has one too, and a port.
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
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return {};
  std::string name = address.substr(0, colon);
  if (name.size() > 2 && name.front() == '[') name = name.substr(1, name.size() - 2);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(name.c_str(), address.c_str() + colon + 1, &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, freeaddrinfo);
  std::set<Place> places;
  for (; found != nullptr; found = found->ai_next) places.insert(PlaceOf(found->ai_addr));
  return places;
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
    // Not closed: gRPC does that when it sees the end.
    if (places.count(PlaceOf(as_address)) > 0 && shutdown(file, SHUT_RDWR) == 0) ++cut;
  }
  return cut;
}

void Endpoints::Note(const std::string& task, const std::string& address) {
  absl::MutexLock lock(&mutex_);
  addresses_[task] = address;
}

void Endpoints::Cut(const std::string& task) const {
  std::string address;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = addresses_.find(task);
    if (found == addresses_.end()) return;
    address = found->second;
  }
  const int cut = CutConnections(address);
  LOG(WARNING) << "Cut " << cut << " connections to " << task << " at " << address
               << ", which has given no sign of life.";
}

}  // namespace tf_tpu_ext
