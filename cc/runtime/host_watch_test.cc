#include "cc/runtime/host_watch.h"

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "cc/pods/pod_testing.h"
#include "cc/pods/socket_testing.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

constexpr absl::Duration kLimit = absl::Milliseconds(20);
constexpr absl::Duration kPatience = absl::Seconds(60);

// Links to hosts whose health the test tells.
class AskedLinks : public HostLinks {
 public:
  explicit AskedLinks(std::function<absl::Status(Host)> health)
      : HostLinks(MakePod(3, 1, 0), {Host(0), Host(1), Host(2)}), health_(std::move(health)) {}

  void Exchange(const std::string&, const Messages&, const std::set<Host>&, Done) override {}
  void Abort(const absl::Status&) override {}
  std::string Describe(absl::Duration) const override { return ""; }
  void CheckHealth(Host host, absl::Duration timeout,
                   const std::function<void(absl::Status)>& done) override {
    EXPECT_EQ(timeout, kLimit / 2);
    done(health_(host));
  }

 private:
  const std::function<absl::Status(Host)> health_;
};

class HostWatchTest : public ::testing::Test {
 protected:
  Endpoints endpoints_{[] { return kLimit; }};
  HostWatch watch_{[] { return kLimit; }, &endpoints_, nullptr};
};

TEST_F(HostWatchTest, AHostWithoutASignIsLostOnce) {
  absl::Notification told;
  std::vector<absl::Status> lost;
  auto links = std::make_shared<AskedLinks>([](Host host) {
    return host == Host(2) ? absl::DeadlineExceededError("silence") : absl::OkStatus();
  });
  const auto watch = watch_.Begin(links, [&](const absl::Status& status) {
    lost.push_back(status);
    told.Notify();  // which ends the process if it comes twice
  });
  ASSERT_TRUE(told.WaitForNotificationWithTimeout(kPatience));
  EXPECT_TRUE(absl::IsUnavailable(lost[0])) << lost[0];
  EXPECT_TRUE(absl::StrContains(lost[0].message(), links->NameOf(Host(2)))) << lost[0];
  EXPECT_TRUE(absl::StrContains(lost[0].message(), "silence")) << lost[0];
}

TEST_F(HostWatchTest, AHostWhoseConnectionsAreCutIsLost) {
  const Connected silent;
  auto links = std::make_shared<AskedLinks>([](Host) { return absl::OkStatus(); });
  absl::Notification told;
  absl::Status lost;
  const auto watch = watch_.Begin(links, [&](const absl::Status& status) {
    lost = status;
    told.Notify();
  });
  endpoints_.Note("/job:another/replica:0/task:0", silent.Address());
  endpoints_.Note(links->NameOf(Host(1)), silent.Address());
  ASSERT_TRUE(told.WaitForNotificationWithTimeout(kPatience));
  EXPECT_TRUE(absl::IsUnavailable(lost)) << lost;
  EXPECT_TRUE(absl::StrContains(lost.message(), links->NameOf(Host(1)))) << lost;
}

TEST_F(HostWatchTest, HealthyHostsAreAskedAgain) {
  absl::Mutex mutex;
  int asked = 0;
  auto links = std::make_shared<AskedLinks>([&](Host) {
    absl::MutexLock lock(&mutex);
    ++asked;
    return absl::OkStatus();
  });
  const auto watch =
      watch_.Begin(links, [](const absl::Status& status) { ADD_FAILURE() << status; });
  absl::MutexLock lock(&mutex);
  const auto often = [&asked] { return asked >= 6; };
  EXPECT_TRUE(mutex.AwaitWithTimeout(absl::Condition(&often), kPatience));
}

TEST_F(HostWatchTest, NobodyIsAskedAfterTheEnd) {
  absl::Notification told;
  auto ended = std::make_shared<AskedLinks>([](Host) {
    ADD_FAILURE() << "asked";
    return absl::OkStatus();
  });
  watch_.Begin(ended, [](const absl::Status&) {}).reset();
  // One that begins later is asked later.
  auto links = std::make_shared<AskedLinks>([](Host) { return absl::AbortedError("another"); });
  const auto watch = watch_.Begin(links, [&told](const absl::Status&) { told.Notify(); });
  EXPECT_TRUE(told.WaitForNotificationWithTimeout(kPatience));
}

}  // namespace
}  // namespace tf_tpu_ext
