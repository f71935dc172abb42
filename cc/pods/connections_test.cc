#include "cc/pods/connections.h"

#include <unistd.h>

#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cc/pods/socket_testing.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

TEST(CutConnectionsTest, ConnectionsToOneAddressAreCut) {
  const Connected cut, kept;
  EXPECT_EQ(CutConnections(cut.Address()), 1);
  EXPECT_TRUE(cut.IsCut());
  EXPECT_FALSE(kept.IsCut());
}

TEST(CutConnectionsTest, AnAddressThatIsNoneCutsNothing) {
  const Connected kept;
  for (const char* address : {"", "localhost", "localhost:http-of-nobody", ":", "[::1"}) {
    EXPECT_EQ(CutConnections(address), 0) << address;
  }
  EXPECT_FALSE(kept.IsCut());
}

TEST(CheckAliveTest, AServerThatSaysSomethingIsAlive) {
  const Connected server;
  const int first = server.Accept();
  std::string heard(33, ' ');
  std::thread answering([&] {
    const int connection = server.Accept();
    EXPECT_EQ(read(connection, heard.data(), heard.size()), 33);
    EXPECT_EQ(write(connection, "x", 1), 1);
    close(connection);
  });
  EXPECT_EQ(CheckAlive(server.Address(), absl::Seconds(30)), absl::OkStatus());
  answering.join();
  EXPECT_EQ(heard.substr(0, 24), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  // An empty frame of type 4.
  EXPECT_EQ(heard.substr(24), std::string("\0\0\0\4\0\0\0\0\0", 9));
  close(first);
}

TEST(CheckAliveTest, AServerThatSaysNothingIsNot) {
  const Connected server;
  const absl::Time start = absl::Now();
  EXPECT_TRUE(absl::IsDeadlineExceeded(CheckAlive(server.Address(), absl::Milliseconds(100))));
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(100));
}

TEST(CheckAliveTest, WhereNobodyListensIsNoSilence) {
  std::string address;
  {
    const Connected server;
    address = server.Address();
  }
  EXPECT_TRUE(absl::IsUnavailable(CheckAlive(address, absl::Seconds(30))));
  for (const char* none : {"nonsense", "", "localhost:service-of-nobody"}) {
    EXPECT_TRUE(absl::IsNotFound(CheckAlive(none, absl::Seconds(30)))) << none;
  }
}

TEST(CheckAliveTest, AServerThatClosesIsNoSilence) {
  const Connected server;
  std::thread closing([&] {
    close(server.Accept());
    close(server.Accept());
  });
  EXPECT_TRUE(absl::IsAborted(CheckAlive(server.Address(), absl::Seconds(30))));
  closing.join();
}

}  // namespace
}  // namespace tf_tpu_ext
