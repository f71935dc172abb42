#include "cc/base/slow_notice.h"

#include <ostream>
#include <sstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

// A stream that counts what is written to it.
class Written : public std::ostream {
 public:
  Written() : std::ostream(&buffer_) {}

  void WaitFor(int writes) {
    absl::MutexLock lock(&buffer_.mutex);
    const auto enough = [&] { return buffer_.writes >= writes; };
    buffer_.mutex.Await(absl::Condition(&enough));
  }

  std::string text() const { return buffer_.str(); }

 private:
  struct Buffer : std::stringbuf {
    int sync() override {
      absl::MutexLock lock(&mutex);
      ++writes;
      return 0;
    }

    absl::Mutex mutex;
    int writes = 0;
  };

  Buffer buffer_;
};

NoticeStream At(std::ostream* out, absl::Duration patience) {
  NoticeStream stream;
  stream.out = out;
  stream.patience = patience;
  return stream;
}

NoticeStream Terminal(std::ostream* out) {
  NoticeStream stream = At(out, absl::ZeroDuration());
  stream.is_terminal = true;
  return stream;
}

TEST(SlowNoticeTest, SaysOnceWhatLastsLongAndHowLongItTook) {
  Written out;
  {
    const SlowNotice notice("compiling", "step", At(&out, absl::ZeroDuration()));
    out.WaitFor(1);
  }
  const std::string text = out.text();
  EXPECT_TRUE(
      absl::StartsWith(text, "tf_tpu_ext: compiling step ...\ntf_tpu_ext: compiling step took "))
      << text;
  EXPECT_TRUE(absl::EndsWith(text, " s\n")) << text;
}

TEST(SlowNoticeTest, SaysNothingOfWhatIsQuick) {
  Written out;
  {
    const SlowNotice notice("compiling", "step", At(&out, absl::Hours(1)));
  }
  EXPECT_EQ(out.text(), "");
}

TEST(SlowNoticeTest, SaysNothingWithoutAStream) {
  const SlowNotice notice("compiling", "step", At(nullptr, absl::ZeroDuration()));
}

TEST(SlowNoticeTest, DrawsABarInOneLineOfATerminal) {
  Written out;
  {
    const SlowNotice notice("compiling", "step", Terminal(&out));
    out.WaitFor(2);
  }
  const std::string text = out.text();
  EXPECT_TRUE(absl::StrContains(text, "compiling step [=====               ] ")) << text;
  EXPECT_TRUE(absl::StrContains(text, "compiling step [ =====              ] ")) << text;
  EXPECT_EQ(text.find('\n'), text.size() - 1) << text;
}

TEST(SlowNoticeTest, OnlyOneDrawsABar) {
  Written out;
  Written other;
  {
    const SlowNotice first("compiling", "first", Terminal(&out));
    out.WaitFor(1);
    const SlowNotice second("compiling", "second", Terminal(&other));
    other.WaitFor(1);
    EXPECT_EQ(other.text(), "tf_tpu_ext: compiling second ...\n");
  }
}

TEST(SlowNoticeTest, WhatGoesOnIsListed) {
  EXPECT_TRUE(AllOngoing().empty());
  {
    const SlowNotice first("compiling", "a", NoticeStream());
    const SlowNotice second("compiling", "b", NoticeStream());
    const std::vector<Ongoing> all = AllOngoing();
    ASSERT_EQ(all.size(), 2);
    EXPECT_EQ(all[0].what, "a");
    EXPECT_EQ(all[1].what, "b");
    EXPECT_LE(all[0].start, all[1].start);
  }
  EXPECT_TRUE(AllOngoing().empty());
}

}  // namespace
}  // namespace tf_tpu_ext
