#include "cc/pods/endpoints.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

// A socket of this process on the loopback interface, and a connection to it.
class Connected {
 public:
  Connected() {
    sockaddr_in place = {};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const as_address = reinterpret_cast<sockaddr*>(&place);
    socklen_t size = sizeof(place);
    EXPECT_EQ(bind(listening_, as_address, size), 0);
    EXPECT_EQ(listen(listening_, 1), 0);
    EXPECT_EQ(getsockname(listening_, as_address, &size), 0);
    port_ = ntohs(place.sin_port);
    EXPECT_EQ(connect(connected_, as_address, size), 0);
  }
  ~Connected() {
    close(connected_);
    close(listening_);
  }
  Connected(const Connected&) = delete;
  Connected& operator=(const Connected&) = delete;

  std::string Address() const { return absl::StrCat("localhost:", port_); }

  // Whether the connection has been ended from this side.
  bool IsCut() const {
    char byte;
    return recv(connected_, &byte, 1, MSG_DONTWAIT) == 0;
  }

 private:
  const int listening_ = socket(AF_INET, SOCK_STREAM, 0);
  const int connected_ = socket(AF_INET, SOCK_STREAM, 0);
  uint16_t port_ = 0;
};

TEST(EndpointsTest, ConnectionsToOneAddressAreCut) {
  const Connected cut, kept;
  EXPECT_EQ(CutConnections(cut.Address()), 1);
  EXPECT_TRUE(cut.IsCut());
  EXPECT_FALSE(kept.IsCut());
}

TEST(EndpointsTest, AnAddressThatIsNoneCutsNothing) {
  const Connected kept;
  for (const char* address : {"", "localhost", "localhost:http-of-nobody", ":", "[::1"}) {
    EXPECT_EQ(CutConnections(address), 0) << address;
  }
  EXPECT_FALSE(kept.IsCut());
}

TEST(EndpointsTest, TasksAreFoundByTheirLastAddress) {
  const Connected before, now;
  Endpoints endpoints;
  endpoints.Note("/job:worker/replica:0/task:1", before.Address());
  endpoints.Note("/job:worker/replica:0/task:1", now.Address());
  endpoints.Cut("/job:worker/replica:0/task:0");
  EXPECT_FALSE(now.IsCut());
  endpoints.Cut("/job:worker/replica:0/task:1");
  EXPECT_TRUE(now.IsCut());
  EXPECT_FALSE(before.IsCut());
}

}  // namespace
}  // namespace tf_tpu_ext
