#include "cc/pods/host_links.h"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "cc/base/tensor_testing.h"
#include "cc/pods/pod_testing.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/lib/core/refcount.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/threadpool.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::FrameAndIter;
using tensorflow::Tensor;

constexpr char kWhat[] = "values";
// What is sent at once, including a header of the message.
constexpr int64_t kPart = int64_t{32} << 20;
constexpr int64_t kHeader = 64;

// Bytes whose values depend on their positions.
std::string Pattern(int64_t bytes, int seed = 0) {
  std::string pattern(bytes, '\0');
  for (int64_t i = 0; i < bytes; ++i) {
    pattern[i] = static_cast<char>((i + seed) * 2654435761u >> 13);
  }
  return pattern;
}

HostMessage MessageOf(const std::string& bytes) {
  HostMessage message(kWhat, static_cast<int64_t>(bytes.size()));
  EXPECT_TRUE(message.CheckMemory().ok());
  std::memcpy(message.data(), bytes.data(), bytes.size());
  return message;
}

// A message of 8 bytes that claims to have more, or fewer.
HostMessage MessageThatClaims(int64_t bytes) {
  HostMessage message(kWhat, 8);
  std::memcpy(message.data() - kHeader, &bytes, sizeof(bytes));
  return message;
}

std::string BytesOf(const HostMessage& message, int64_t bytes) {
  const absl::Status status = message.Check(kWhat, bytes, "the other host");
  EXPECT_TRUE(status.ok()) << status;
  return status.ok() ? std::string(message.data(), bytes) : "";
}

// How an exchange ends for one host.
class Ending {
 public:
  HostLinks::Done Done() {
    return [this](absl::StatusOr<HostLinks::Messages> messages) {
      EXPECT_FALSE(messages_.has_value()) << "ended twice";
      messages_ = std::move(messages);
    };
  }

  bool has_come() const { return messages_.has_value(); }
  absl::Status status() const {
    return has_come() ? messages_->status() : absl::UnavailableError("has not ended");
  }
  const HostMessage& MessageFrom(int host) const { return (*messages_)->at(Host(host)); }
  size_t size() const { return (*messages_)->size(); }

 private:
  std::optional<absl::StatusOr<HostLinks::Messages>> messages_;
};

// The hosts are in this process: what one sends to another arrives on the thread of whichever comes
// second.
class HostLinksTest : public ::testing::Test {
 protected:
  // Messages that nothing has asked for keep a rendezvous alive. In a test that has failed,
  // something may still be waiting.
  void TearDown() override {
    if (rendezvous_ == nullptr || HasFailure()) return;
    rendezvous_->StartAbort(absl::CancelledError("the test is over"));
  }

  std::shared_ptr<HostLinks> Make(int hosts, int host, const std::string& launch = "7",
                                  FrameAndIter iteration = FrameAndIter(0, 0)) {
    Pod pod = MakePod(hosts, 2, host);
    const std::set<Host> all = HostsOfPod(pod);
    return MakeHostLinks(std::move(pod), all, launch, iteration, rendezvous_.get(),
                         [this](const std::function<void()>& work) {
                           ++scheduled_;
                           work();
                         });
  }

  void Connect(int hosts) {
    links_.clear();
    for (int host = 0; host < hosts; ++host) links_.push_back(Make(hosts, host));
  }

  // One message to each of the others, and one from each.
  void ExchangeWithOthers(int host, const std::string& name, const std::string& bytes,
                          Ending* ending) {
    HostLinks::Messages messages;
    for (Host other : links_[host]->others()) messages[other] = MessageOf(bytes);
    links_[host]->Exchange(name, messages, links_[host]->others(), ending->Done());
  }

  tensorflow::core::RefCountPtr<tensorflow::Rendezvous> rendezvous_{
      tensorflow::NewLocalRendezvous()};
  std::vector<std::shared_ptr<HostLinks>> links_;
  int scheduled_ = 0;
};

TEST_F(HostLinksTest, KnowTheHosts) {
  Connect(3);
  EXPECT_EQ(links_[1]->others(), (std::set<Host>{Host(0), Host(2)}));
  EXPECT_TRUE(links_[1]->IsOther(links_[0]->NameOf(Host(0))));
  EXPECT_FALSE(links_[1]->IsOther(links_[0]->NameOf(Host(1))));
  EXPECT_FALSE(links_[1]->IsOther("/job:worker"));
  EXPECT_EQ(links_[1]->shape().host, Host(1));
  EXPECT_EQ(links_[1]->NameOf(Host(2)), TaskOfHost(2));
}

TEST_F(HostLinksTest, MessagesArriveWhole) {
  Connect(2);
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{1000}}) {
    Ending endings[2];
    const std::string name = absl::StrCat("exchange ", bytes);
    ExchangeWithOthers(1, name, Pattern(bytes, 1), &endings[1]);
    EXPECT_FALSE(endings[1].has_come()) << bytes;
    ExchangeWithOthers(0, name, Pattern(bytes, 0), &endings[0]);
    for (int host = 0; host < 2; ++host) {
      ASSERT_TRUE(endings[host].status().ok()) << endings[host].status();
      EXPECT_EQ(endings[host].size(), 1u);
      EXPECT_EQ(BytesOf(endings[host].MessageFrom(1 - host), bytes), Pattern(bytes, 1 - host));
    }
  }
}

TEST_F(HostLinksTest, LargeMessagesArriveWhole) {
  Connect(2);
  // The largest message of one part, the smallest of two, and one in between.
  for (const int64_t bytes : {kPart - kHeader, kPart - kHeader + 1, kPart + (kPart >> 5)}) {
    const std::string sent = Pattern(bytes);
    // The receiver asks before the message is there, or after.
    for (const bool asks_first : {true, false}) {
      const std::string name = absl::StrCat("exchange ", bytes, asks_first);
      Ending sender, receiver;
      const auto receive = [&] { links_[1]->Exchange(name, {}, {Host(0)}, receiver.Done()); };
      if (asks_first) receive();
      links_[0]->Exchange(name, {{Host(1), MessageOf(sent)}}, {}, sender.Done());
      EXPECT_TRUE(sender.status().ok()) << sender.status();
      if (!asks_first) receive();
      ASSERT_TRUE(receiver.status().ok()) << receiver.status();
      // Not EXPECT_EQ: a difference would be too long to print.
      EXPECT_TRUE(BytesOf(receiver.MessageFrom(0), bytes) == sent) << bytes;
    }
  }
}

TEST_F(HostLinksTest, EachHostGetsTheMessageThatIsForIt) {
  Connect(3);
  Ending endings[3];
  for (int host = 0; host < 3; ++host) {
    HostLinks::Messages messages;
    for (Host other : links_[host]->others()) {
      messages[other] = MessageOf(absl::StrCat("from ", host, " to ", other));
    }
    links_[host]->Exchange("round", messages, links_[host]->others(), endings[host].Done());
    EXPECT_EQ(endings[0].has_come(), host == 2);
  }
  for (int host = 0; host < 3; ++host) {
    ASSERT_TRUE(endings[host].status().ok()) << endings[host].status();
    ASSERT_EQ(endings[host].size(), 2u);
    for (int other = 0; other < 3; ++other) {
      if (other == host) continue;
      const std::string expected = absl::StrCat("from ", other, " to ", host);
      EXPECT_EQ(BytesOf(endings[host].MessageFrom(other), static_cast<int64_t>(expected.size())),
                expected);
    }
  }
}

TEST_F(HostLinksTest, ExchangesMeetByTheirNames) {
  Connect(2);
  const std::vector<std::string> names = {"a", "b", "c"};
  Ending first[3], second[3];
  for (int i : {0, 1, 2}) ExchangeWithOthers(0, names[i], names[i] + " of 0", &first[i]);
  for (int i : {2, 0, 1}) {
    EXPECT_FALSE(first[i].has_come());
    ExchangeWithOthers(1, names[i], names[i] + " of 1", &second[i]);
    ASSERT_TRUE(first[i].status().ok()) << first[i].status();
    ASSERT_TRUE(second[i].status().ok()) << second[i].status();
    EXPECT_EQ(BytesOf(first[i].MessageFrom(1), 6), names[i] + " of 1");
    EXPECT_EQ(BytesOf(second[i].MessageFrom(0), 6), names[i] + " of 0");
  }
}

// A host may be a launch, or an iteration of a loop, ahead of another host.
TEST_F(HostLinksTest, LaunchesAndRoundsOfLoopsAreApart) {
  const FrameAndIter rounds[] = {FrameAndIter(0, 0), FrameAndIter(0, 0), FrameAndIter(0, 1),
                                 FrameAndIter(1, 0)};
  const char* const launches[] = {"1", "2", "1", "1"};
  std::vector<std::shared_ptr<HostLinks>> senders, receivers;
  for (int i = 0; i < 4; ++i) {
    senders.push_back(Make(2, 0, launches[i], rounds[i]));
    receivers.push_back(Make(2, 1, launches[i], rounds[i]));
  }
  for (int i = 0; i < 4; ++i) {
    Ending sent;
    senders[i]->Exchange("sum", {{Host(1), MessageOf(absl::StrCat(i))}}, {}, sent.Done());
  }
  for (int i : {3, 1, 0, 2}) {
    Ending received;
    receivers[i]->Exchange("sum", {}, {Host(0)}, received.Done());
    ASSERT_TRUE(received.status().ok()) << received.status();
    EXPECT_EQ(BytesOf(received.MessageFrom(0), 1), absl::StrCat(i));
  }
}

TEST_F(HostLinksTest, WithNobodyToReceiveFromAnExchangeEndsAtOnce) {
  Connect(2);
  Ending nothing, sent, received;
  links_[0]->Exchange("nothing", {}, {}, nothing.Done());
  EXPECT_TRUE(nothing.status().ok()) << nothing.status();
  EXPECT_EQ(nothing.size(), 0u);
  EXPECT_EQ(scheduled_, 1);
  links_[0]->Exchange("start", {{Host(1), MessageOf("go")}}, {}, sent.Done());
  EXPECT_TRUE(sent.status().ok()) << sent.status();
  EXPECT_EQ(sent.size(), 0u);
  links_[1]->Exchange("start", {}, {Host(0)}, received.Done());
  ASSERT_TRUE(received.status().ok()) << received.status();
  EXPECT_EQ(BytesOf(received.MessageFrom(0), 2), "go");
}

TEST_F(HostLinksTest, TheEndIsToldWhereTheCallerWantsIt) {
  std::vector<std::function<void()>> work;
  Pod pod = MakePod(2, 1, 0);
  const std::set<Host> hosts = HostsOfPod(pod);
  const auto links =
      MakeHostLinks(std::move(pod), hosts, "7", FrameAndIter(0, 0), rendezvous_.get(),
                    [&work](std::function<void()> done) { work.push_back(std::move(done)); });
  const auto other = Make(2, 1);
  Ending received, nothing, failed, sent;
  links->Exchange("a", {}, {Host(1)}, received.Done());
  other->Exchange("a", {{Host(0), MessageOf("a")}}, {}, sent.Done());
  links->Exchange("b", {}, {}, nothing.Done());
  links->Exchange("c", {}, {Host(1)}, failed.Done());
  links->Abort(absl::CancelledError("over"));
  EXPECT_FALSE(received.has_come());
  EXPECT_FALSE(nothing.has_come());
  EXPECT_FALSE(failed.has_come());
  ASSERT_EQ(work.size(), 3u);
  for (const auto& done : work) done();
  EXPECT_TRUE(received.status().ok()) << received.status();
  EXPECT_TRUE(nothing.status().ok()) << nothing.status();
  EXPECT_EQ(failed.status(), absl::CancelledError("over"));
}

TEST_F(HostLinksTest, AbortFailsExchangesOfNowAndOfLater) {
  Connect(2);
  Ending now, later, later_alone, of_other;
  ExchangeWithOthers(0, "now", "a", &now);
  EXPECT_FALSE(now.has_come());
  links_[0]->Abort(absl::DeadlineExceededError("too long"));
  EXPECT_EQ(now.status(), absl::DeadlineExceededError("too long"));
  links_[0]->Abort(absl::InternalError("another one"));
  ExchangeWithOthers(0, "later", "a", &later);
  EXPECT_EQ(later.status(), absl::DeadlineExceededError("too long"));
  links_[0]->Exchange("later", {}, {}, later_alone.Done());
  EXPECT_EQ(later_alone.status(), absl::DeadlineExceededError("too long"));
  EXPECT_EQ(links_[0]->Describe(absl::ZeroDuration()), "");
  // The other host still gets the earlier message, and waits for the later one.
  ExchangeWithOthers(1, "now", "b", &of_other);
  EXPECT_TRUE(of_other.status().ok()) << of_other.status();
  Ending waiting;
  ExchangeWithOthers(1, "later", "b", &waiting);
  EXPECT_FALSE(waiting.has_come());
  links_[1]->Abort(absl::CancelledError("over"));
  EXPECT_EQ(waiting.status(), absl::CancelledError("over"));
}

TEST_F(HostLinksTest, AbortFailsExchangesOfWhichAPartHasCome) {
  Connect(3);
  Ending ending, sent;
  links_[0]->Exchange("sum", {}, {Host(1), Host(2)}, ending.Done());
  links_[1]->Exchange("sum", {{Host(0), MessageOf("a")}}, {}, sent.Done());
  EXPECT_FALSE(ending.has_come());
  links_[0]->Abort(absl::CancelledError("over"));
  EXPECT_EQ(ending.status(), absl::CancelledError("over"));
  // Nothing waits for it anymore.
  links_[2]->Exchange("sum", {{Host(0), MessageOf("b")}}, {}, Ending().Done());
}

TEST_F(HostLinksTest, ARendezvousThatEndsFailsExchangesAndNamesTheHost) {
  Connect(3);
  Ending now, later;
  links_[0]->Exchange("now", {}, {Host(2)}, now.Done());
  EXPECT_FALSE(now.has_come());
  rendezvous_->StartAbort(absl::UnavailableError("the worker is gone"));
  links_[0]->Exchange("later", {}, {Host(1)}, later.Done());
  for (const auto& [ending, host] : {std::pair(&now, 2), std::pair(&later, 1)}) {
    EXPECT_TRUE(absl::IsUnavailable(ending->status())) << ending->status();
    EXPECT_TRUE(absl::StrContains(ending->status().message(), "the worker is gone"))
        << ending->status();
    EXPECT_TRUE(absl::StrContains(ending->status().message(), TaskOfHost(host)))
        << ending->status();
  }
}

TEST_F(HostLinksTest, WhatCanNotBeSentFailsTheExchange) {
  Connect(2);
  rendezvous_->StartAbort(absl::UnavailableError("the worker is gone"));
  Ending both, sent;
  ExchangeWithOthers(0, "both", "a", &both);
  links_[0]->Exchange("sent", {{Host(1), MessageOf("a")}}, {}, sent.Done());
  for (const Ending* ending : {&both, &sent}) {
    EXPECT_TRUE(absl::IsUnavailable(ending->status())) << ending->status();
    EXPECT_TRUE(absl::StrContains(ending->status().message(), "the worker is gone"))
        << ending->status();
  }
  EXPECT_EQ(links_[0]->Describe(absl::ZeroDuration()), "");
}

TEST_F(HostLinksTest, WhatIsExpectedIsThereWhenItIsAskedFor) {
  Connect(2);
  for (const bool comes_before : {true, false}) {
    const std::string name = absl::StrCat("end ", comes_before);
    Ending sent, received;
    links_[1]->Expect(name, {Host(0)});
    links_[1]->Expect(name, {Host(0)});
    // Nothing waits yet.
    EXPECT_EQ(links_[1]->Describe(absl::ZeroDuration()), "");
    const auto send = [&] {
      links_[0]->Exchange(name, {{Host(1), MessageOf("well")}}, {}, sent.Done());
    };
    if (comes_before) send();
    links_[1]->Exchange(name, {}, {Host(0)}, received.Done());
    EXPECT_EQ(received.has_come(), comes_before);
    EXPECT_EQ(links_[1]->Describe(absl::ZeroDuration()).empty(), comes_before);
    if (!comes_before) send();
    ASSERT_TRUE(received.status().ok()) << received.status();
    EXPECT_EQ(BytesOf(received.MessageFrom(0), 4), "well");
    EXPECT_EQ(links_[1]->Describe(absl::ZeroDuration()), "");
  }
}

TEST_F(HostLinksTest, WhatIsExpectedMayFail) {
  Connect(2);
  Ending of_aborted, never_expected, of_lost;
  links_[0]->Expect("end", {Host(1)});
  links_[0]->Abort(absl::CancelledError("over"));
  links_[0]->Expect("another end", {Host(1)});
  links_[0]->Exchange("end", {}, {Host(1)}, of_aborted.Done());
  EXPECT_EQ(of_aborted.status(), absl::CancelledError("over"));
  links_[0]->Exchange("another end", {}, {Host(1)}, never_expected.Done());
  EXPECT_EQ(never_expected.status(), absl::CancelledError("over"));
  // The other host learns about it when it asks.
  links_[1]->Expect("end", {Host(0)});
  rendezvous_->StartAbort(absl::UnavailableError("the worker is gone"));
  links_[1]->Exchange("end", {}, {Host(0)}, of_lost.Done());
  EXPECT_TRUE(absl::IsUnavailable(of_lost.status())) << of_lost.status();
  EXPECT_TRUE(absl::StrContains(of_lost.status().message(), TaskOfHost(0))) << of_lost.status();
}

// Reports when it is destroyed.
class WatchedRendezvous : public tensorflow::Rendezvous {
 public:
  explicit WatchedRendezvous(bool* gone) : gone_(*gone) {}
  ~WatchedRendezvous() override {
    gone_ = true;
    local_->StartAbort(absl::CancelledError("the test is over"));
  }

  absl::Status Send(const ParsedKey& key, const Args& args, const Tensor& value,
                    bool is_dead) override {
    return local_->Send(key, args, value, is_dead);
  }
  void RecvAsync(const ParsedKey& key, const Args& args, DoneCallback done) override {
    local_->RecvAsync(key, args, std::move(done));
  }
  void StartAbort(const absl::Status& status) override { local_->StartAbort(status); }

 private:
  bool& gone_;
  const tensorflow::core::RefCountPtr<tensorflow::Rendezvous> local_{
      tensorflow::NewLocalRendezvous()};
};

// The step may end while messages are on their way.
TEST_F(HostLinksTest, TheRendezvousLivesAsLongAsTheLinks) {
  bool gone = false;
  rendezvous_.reset(new WatchedRendezvous(&gone));
  Connect(2);
  Ending endings[2], aborted;
  ExchangeWithOthers(0, "sum", "a", &endings[0]);
  rendezvous_.reset();
  ASSERT_FALSE(gone);
  ExchangeWithOthers(1, "sum", "b", &endings[1]);
  for (const Ending& ending : endings) EXPECT_TRUE(ending.status().ok()) << ending.status();
  ExchangeWithOthers(0, "later", "a", &aborted);
  links_[0]->Abort(absl::CancelledError("over"));
  EXPECT_EQ(aborted.status(), absl::CancelledError("over"));
  EXPECT_FALSE(gone);
  // Neither keeps the other alive forever.
  links_.clear();
  EXPECT_TRUE(gone);
}

TEST_F(HostLinksTest, DescribeSaysWhoWaitsForWhom) {
  Connect(3);
  EXPECT_EQ(links_[0]->Describe(absl::ZeroDuration()), "");
  Ending ending, sent[2];
  links_[0]->Exchange("sum", {}, {Host(1), Host(2)}, ending.Done());
  EXPECT_EQ(links_[0]->Describe(absl::ZeroDuration()),
            "/job:worker/replica:0/task:0 waits in sum for /job:worker/replica:0/task:1, "
            "/job:worker/replica:0/task:2; ");
  // It has not waited that long.
  EXPECT_EQ(links_[0]->Describe(absl::Hours(1)), "");
  EXPECT_EQ(links_[1]->Describe(absl::ZeroDuration()), "");
  links_[1]->Exchange("sum", {{Host(0), MessageOf("a")}}, {}, sent[0].Done());
  EXPECT_EQ(links_[0]->Describe(absl::ZeroDuration()),
            "/job:worker/replica:0/task:0 waits in sum for /job:worker/replica:0/task:2; ");
  links_[2]->Exchange("sum", {{Host(0), MessageOf("b")}}, {}, sent[1].Done());
  EXPECT_TRUE(ending.status().ok()) << ending.status();
  EXPECT_EQ(links_[0]->Describe(absl::ZeroDuration()), "");
}

TEST_F(HostLinksTest, MessagesThatAreNoneAreFound) {
  Connect(2);
  const HostMessage damaged[] = {HostMessage(MakeVector<float>({1, 2, 3})),
                                 HostMessage(MakeVector<uint8_t>({1, 2, 3})),
                                 MessageThatClaims(-1)};
  for (int i = 0; i < 3; ++i) {
    Ending sent, received;
    links_[1]->Exchange(absl::StrCat(i), {}, {Host(0)}, received.Done());
    links_[0]->Exchange(absl::StrCat(i), {{Host(1), damaged[i]}}, {}, sent.Done());
    EXPECT_TRUE(sent.status().ok()) << sent.status();
    ASSERT_TRUE(received.status().ok()) << received.status();
    EXPECT_FALSE(received.MessageFrom(0).Check(kWhat, 8, TaskOfHost(0)).ok()) << i;
  }
}

TEST_F(HostLinksTest, AMessageLargerThanTheMemoryFailsTheExchange) {
  Connect(2);
  Ending sent, received;
  links_[1]->Exchange("sum", {}, {Host(0)}, received.Done());
  links_[0]->Exchange("sum", {{Host(1), MessageThatClaims(int64_t{1} << 46)}}, {}, sent.Done());
  EXPECT_TRUE(absl::IsResourceExhausted(received.status())) << received.status();
}

// Hosts that run on their own threads go through the same exchanges in different orders.
TEST_F(HostLinksTest, ManyExchangesAtOnce) {
  constexpr int kHosts = 3;
  constexpr int kExchanges = 50;
  constexpr int64_t kSizes[] = {0, 10, 1000, 100000};
  std::atomic<int> missing{kHosts * kExchanges};
  absl::Notification over;
  std::vector<std::shared_ptr<HostLinks>> links;
  // Last, because its threads use everything else.
  tensorflow::thread::ThreadPool pool(tensorflow::Env::Default(), "host_links_test", 4);
  for (int host = 0; host < kHosts; ++host) {
    Pod pod = MakePod(kHosts, 2, host);
    const std::set<Host> all = HostsOfPod(pod);
    links.push_back(
        MakeHostLinks(std::move(pod), all, "7", FrameAndIter(0, 0), rendezvous_.get(),
                      [&pool](std::function<void()> work) { pool.Schedule(std::move(work)); }));
  }
  const auto exchange = [&](int host, int number) {
    const int64_t bytes = kSizes[number % 4];
    HostLinks::Messages messages;
    for (Host other : links[host]->others()) {
      messages[other] = MessageOf(Pattern(bytes, 10 * number + host));
    }
    links[host]->Exchange(absl::StrCat("exchange ", number), messages, links[host]->others(),
                          [&, bytes, number, others = links[host]->others()](
                              const absl::StatusOr<HostLinks::Messages>& received) {
                            EXPECT_TRUE(received.ok()) << received.status();
                            for (Host other : others) {
                              if (!received.ok()) break;
                              EXPECT_EQ(BytesOf(received->at(other), bytes),
                                        Pattern(bytes, 10 * number + other.value()));
                            }
                            if (--missing == 0) over.Notify();
                          });
  };
  for (int i = 0; i < kExchanges; ++i) {
    for (int host = 0; host < kHosts; ++host) {
      // Each has no common divisor with the number of exchanges.
      const int step[] = {1, 7, 11};
      pool.Schedule(
          [&exchange, host, number = i * step[host] % kExchanges] { exchange(host, number); });
    }
  }
  ASSERT_TRUE(over.WaitForNotificationWithTimeout(absl::Minutes(2))) << missing << " are missing";
  for (const auto& each : links) EXPECT_EQ(each->Describe(absl::ZeroDuration()), "");
}

// A failure may come at any time, but each exchange ends exactly once.
TEST_F(HostLinksTest, AbortMayComeWhileMessagesDo) {
  constexpr int kRounds = 100;
  std::atomic<int> missing{2 * kRounds};
  absl::Notification over;
  tensorflow::thread::ThreadPool pool(tensorflow::Env::Default(), "host_links_test", 4);
  std::vector<std::shared_ptr<HostLinks>> all;
  for (int round = 0; round < kRounds; ++round) {
    for (int host = 0; host < 2; ++host) {
      Pod pod = MakePod(2, 1, host);
      const std::set<Host> hosts = HostsOfPod(pod);
      all.push_back(MakeHostLinks(
          std::move(pod), hosts, absl::StrCat(round), FrameAndIter(0, 0), rendezvous_.get(),
          [&pool](std::function<void()> work) { pool.Schedule(std::move(work)); }));
    }
  }
  for (int round = 0; round < kRounds; ++round) {
    for (int host = 0; host < 2; ++host) {
      const std::shared_ptr<HostLinks>& links = all[2 * round + host];
      pool.Schedule([&, links] {
        HostLinks::Messages messages;
        for (Host other : links->others()) messages[other] = MessageOf("a");
        links->Exchange("sum", messages, links->others(),
                        [&](const absl::StatusOr<HostLinks::Messages>& received) {
                          EXPECT_TRUE(received.ok() || absl::IsCancelled(received.status()))
                              << received.status();
                          if (--missing == 0) over.Notify();
                        });
      });
      pool.Schedule([links] { links->Abort(absl::CancelledError("over")); });
    }
  }
  ASSERT_TRUE(over.WaitForNotificationWithTimeout(absl::Minutes(2))) << missing << " are missing";
}

TEST(HostMessageTest, FindsWhatIsNotExpected) {
  const HostMessage message("all-reduce of 2 elements", 8);
  EXPECT_TRUE(message.Check("all-reduce of 2 elements", 8, "host 1").ok());
  const absl::Status other_size = message.Check("all-reduce of 2 elements", 16, "host 1");
  EXPECT_TRUE(absl::IsInvalidArgument(other_size)) << other_size;
  const absl::Status other_text = message.Check("all-gather of 2 elements", 8, "host 1");
  EXPECT_TRUE(absl::IsInvalidArgument(other_text)) << other_text;
  EXPECT_TRUE(absl::StrContains(other_text.message(),
                                "host 1 is in all-reduce of 2 elements with 8 bytes for this host, "
                                "which is in all-gather of 2 elements and expects 8."))
      << other_text;
}

TEST(HostMessageTest, FindsWhatIsNotComplete) {
  const HostMessage whole("values", 100);
  const HostMessage cut(whole.tensor().Slice(0, 128));
  const absl::Status status = cut.Check("values", 100, "host 1");
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
}

TEST(HostMessageTest, FindsTensorsThatAreNoMessages) {
  const Tensor others[] = {Tensor(), Tensor(1.0f), MakeVector<float>(std::vector<float>(100)),
                           MakeVector<uint8_t>(std::vector<uint8_t>(63)),
                           Tensor(tensorflow::DT_STRING, {100})};
  for (const Tensor& tensor : others) {
    const absl::Status status = HostMessage(tensor).Check("values", 0, "host 1");
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "host 1")) << status;
  }
  // A message that was never received.
  EXPECT_TRUE(absl::IsDataLoss(HostMessage().Check("values", 0, "host 1")));
}

TEST(HostMessageTest, HasRoomForLongTexts) {
  const std::string text(1000, 'x');
  const HostMessage message(text, 4);
  EXPECT_TRUE(message.Check(text, 4, "host 1").ok());
  EXPECT_FALSE(message.Check("y" + text, 4, "host 1").ok());
  EXPECT_TRUE(message.CheckMemory().ok());
}

}  // namespace
}  // namespace tf_tpu_ext
