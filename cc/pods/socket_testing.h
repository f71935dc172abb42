// Sockets for tests.
#ifndef TF_TPU_EXT_CC_PODS_SOCKET_TESTING_H_
#define TF_TPU_EXT_CC_PODS_SOCKET_TESTING_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {

// A socket that listens on the loopback interface and never answers, like that of a stopped
// process, and a connection to it.
class Connected {
 public:
  Connected() {
    sockaddr_in place = {};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const as_address = reinterpret_cast<sockaddr*>(&place);
    socklen_t size = sizeof(place);
    EXPECT_EQ(bind(listening_, as_address, size), 0);
    EXPECT_EQ(listen(listening_, 8), 0);
    EXPECT_EQ(getsockname(listening_, as_address, &size), 0);
    port_ = ntohs(place.sin_port);
    EXPECT_EQ(connect(connected_, as_address, size), 0);
  }
  ~Connected() {
    close(connected_);
    StopListening();
  }
  Connected(const Connected&) = delete;
  Connected& operator=(const Connected&) = delete;

  std::string Address() const { return absl::StrCat("localhost:", port_); }

  // Whether this process has ended the connection.
  bool IsCut() const {
    char byte;
    return recv(connected_, &byte, 1, MSG_DONTWAIT) == 0;
  }

  void StopListening() {
    if (listening_ >= 0) close(listening_);
    listening_ = -1;
  }

  // The server's side of the next connection.
  int Accept() const { return accept(listening_, nullptr, nullptr); }

 private:
  int listening_ = socket(AF_INET, SOCK_STREAM, 0);
  const int connected_ = socket(AF_INET, SOCK_STREAM, 0);
  uint16_t port_ = 0;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PODS_SOCKET_TESTING_H_
