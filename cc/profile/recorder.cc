#include "cc/profile/recorder.h"

#include <cstddef>
#include <utility>

#include "xla/tsl/profiler/utils/time_utils.h"

namespace tf_tpu_ext {
namespace {

// About 200 bytes each: a profile that is never stopped must not fill the memory.
constexpr size_t kMaxRecords = size_t{1} << 20;

}  // namespace

ProfileTime ProfileRecorder::Now() const {
  if (!active()) return std::nullopt;
  return tsl::profiler::GetCurrentTimeNanos();
}

ProfileTime NowIfRecording(const ProfileRecorder* recorder) {
  return recorder == nullptr ? std::nullopt : recorder->Now();
}

ProfiledWait::ProfiledWait(ProfileRecorder* recorder, const std::string& name, RunId run_id,
                           Core core)
    : recorder_(recorder) {
  const ProfileTime now = NowIfRecording(recorder);
  if (!now.has_value()) return;
  wait_.emplace();
  wait_->name = name;
  wait_->run_id = run_id;
  wait_->in_run = true;
  wait_->core = core;
  wait_->begin = *now;
}

void ProfiledWait::End() {
  if (!wait_.has_value()) return;
  if (const ProfileTime now = recorder_->Now()) {
    wait_->end = *now;
    recorder_->Add(*std::move(wait_));
  }
  wait_.reset();
}

void ProfileRecorder::Start() {
  absl::MutexLock lock(&mutex_);
  recording_ = Recording();
  active_.store(true, std::memory_order_relaxed);
}

void ProfileRecorder::Stop() {
  absl::MutexLock lock(&mutex_);
  active_.store(false, std::memory_order_relaxed);
}

Recording ProfileRecorder::Take() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(recording_, Recording());
}

bool ProfileRecorder::HasRoom() {
  if (!active()) return false;
  if (recording_.runs.size() + recording_.waits.size() < kMaxRecords) return true;
  ++recording_.dropped;
  return false;
}

void ProfileRecorder::Add(RecordedRun run) {
  absl::MutexLock lock(&mutex_);
  if (HasRoom()) recording_.runs.push_back(std::move(run));
}

void ProfileRecorder::Add(RecordedWait wait) {
  absl::MutexLock lock(&mutex_);
  if (HasRoom()) recording_.waits.push_back(std::move(wait));
}

}  // namespace tf_tpu_ext
