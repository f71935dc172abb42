#include "cc/pods/endpoints.h"

#include <unistd.h>

#include <atomic>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cc/pods/socket_testing.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

constexpr char kTask[] = "/job:worker/replica:0/task:1";

TEST(EndpointsTest, ASilentHostLosesItsConnections) {
  const Connected silent, another;
  Endpoints endpoints([] { return absl::Milliseconds(100); });
  std::atomic<int> told{0}, told_nobody{0};
  const auto listener = endpoints.Listen([&](const std::string& task, const absl::Status& why) {
    EXPECT_EQ(task, kTask);
    EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable);
    EXPECT_TRUE(absl::StartsWith(
        why.message(), absl::StrCat(kTask, " at ", silent.Address(),
                                    " has given no sign of life for 100ms: no answer. When it")))
        << why;
    // Whatever waits for the host learns why before its connection is cut.
    EXPECT_TRUE(told.fetch_add(1) > 0 || !silent.IsCut());
  });
  endpoints.Listen([&](const std::string&, const absl::Status&) { ++told_nobody; });
  endpoints.Note(kTask, silent.Address());
  while (!silent.IsCut()) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_GE(told, 1);
  EXPECT_EQ(told_nobody, 0);
  EXPECT_FALSE(another.IsCut());
}

TEST(EndpointsTest, TheLastAddressOfATaskCounts) {
  const Connected before, now;
  Endpoints endpoints([] { return absl::Milliseconds(100); });
  endpoints.Note(kTask, before.Address());
  endpoints.Note(kTask, now.Address());
  while (!now.IsCut()) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_FALSE(before.IsCut());
}

TEST(EndpointsTest, ConnectionsThatOutlastTheirHostAreCut) {
  Connected server;
  const Connected another;
  // As with a machine that has restarted: nothing listens, and the connection has not ended.
  const int other_end = server.Accept();
  server.StopListening();
  Endpoints endpoints([] { return absl::Milliseconds(100); });
  endpoints.Note(kTask, server.Address());
  while (!server.IsCut()) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_FALSE(another.IsCut());
  close(other_end);
}

TEST(EndpointsTest, AHostThatAnswersKeepsItsConnections) {
  const Connected answering;
  // The test's own connection.
  close(answering.Accept());
  Endpoints endpoints([] { return absl::Milliseconds(500); });
  endpoints.Note(kTask, answering.Address());
  for (int i = 0; i < 3; ++i) {
    const int connection = answering.Accept();
    EXPECT_EQ(write(connection, "x", 1), 1);
    char byte;
    // Until the other side has closed it.
    while (read(connection, &byte, 1) > 0) {
    }
    close(connection);
  }
}

}  // namespace
}  // namespace tf_tpu_ext
