#include "cc/base/slow_notice.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <utility>

#include "absl/base/const_init.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "xla/tsl/util/env_var.h"

namespace tf_tpu_ext {
namespace {

constexpr absl::string_view kOurName = "tf_tpu_ext: ";
constexpr absl::Duration kRedraw = absl::Milliseconds(250);
constexpr int kBarWidth = 20;
constexpr int kBlockWidth = 5;
// Returns to the first column and erases to the end of the line.
constexpr absl::string_view kSameLine = "\r\033[K";

// The lines of several notices don't mix, and only one notice at a time draws a bar.
absl::Mutex writing(absl::kConstInit);
absl::Mutex drawing(absl::kConstInit);

absl::Mutex listing(absl::kConstInit);

std::vector<const Ongoing*>& Listed() {
  static auto* const listed = new std::vector<const Ongoing*>;
  return *listed;
}

void List(const Ongoing* ongoing) {
  absl::MutexLock lock(&listing);
  Listed().push_back(ongoing);
}

void Unlist(const Ongoing* ongoing) {
  absl::MutexLock lock(&listing);
  Listed().erase(std::find(Listed().begin(), Listed().end(), ongoing));
}

// A wandering block, since nobody knows how long it will take.
std::string Bar(int step) {
  std::string bar(kBarWidth, ' ');
  for (int i = 0; i < kBlockWidth; ++i) bar[(step + i) % kBarWidth] = '=';
  return absl::StrCat("[", bar, "]");
}

std::string Seconds(absl::Duration time) {
  return absl::StrFormat("%.1f s", absl::ToDoubleSeconds(time));
}

bool IsSilenced() {
  int64_t level = 0;
  return tsl::ReadInt64FromEnvVar("TF_CPP_MIN_LOG_LEVEL", /*default_val=*/0, &level).ok() &&
         level > 0;
}

}  // namespace

NoticeStream NoticeStream::StandardError() {
  NoticeStream stream;
  if (!IsSilenced()) stream.out = &std::cerr;
  stream.is_terminal = isatty(STDERR_FILENO) != 0;
  return stream;
}

std::vector<Ongoing> AllOngoing() {
  absl::MutexLock lock(&listing);
  std::vector<Ongoing> all;
  for (const Ongoing* ongoing : Listed()) all.push_back(*ongoing);
  return all;
}

SlowNotice::SlowNotice(std::string doing, std::string what, const NoticeStream& stream)
    : watched_{std::move(doing), std::move(what), absl::Now()}, stream_(stream) {
  List(&watched_);
  if (stream_.out != nullptr) thread_ = std::thread([this] { Watch(); });
}

SlowNotice::~SlowNotice() {
  ended_.Notify();
  if (thread_.joinable()) thread_.join();
  Unlist(&watched_);
}

void SlowNotice::Watch() {
  if (ended_.WaitForNotificationWithTimeout(stream_.patience)) return;
  if (stream_.is_terminal && drawing.TryLock()) {
    DrawUntilEnded();
    drawing.Unlock();
  } else {
    Write(absl::StrCat(kOurName, watched_.doing, " ", watched_.what, " ...\n"));
    ended_.WaitForNotification();
    Write(absl::StrCat(kOurName, watched_.doing, " ", watched_.what, " took ",
                       Seconds(absl::Now() - watched_.start), "\n"));
  }
}

void SlowNotice::DrawUntilEnded() {
  const std::string text = absl::StrCat(kOurName, watched_.doing, " ", watched_.what, " ");
  int step = 0;
  do {
    Write(absl::StrCat(kSameLine, text, Bar(step++), " ", Seconds(absl::Now() - watched_.start)));
  } while (!ended_.WaitForNotificationWithTimeout(kRedraw));
  Write(absl::StrCat(kSameLine, text, "took ", Seconds(absl::Now() - watched_.start), "\n"));
}

void SlowNotice::Write(const std::string& text) {
  absl::MutexLock lock(&writing);
  *stream_.out << text << std::flush;
}

}  // namespace tf_tpu_ext
