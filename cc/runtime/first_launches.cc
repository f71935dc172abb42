#include "cc/runtime/first_launches.h"

#include <utility>

#include "absl/time/clock.h"

namespace tf_tpu_ext {

size_t LaunchTimes::BeginRun(std::vector<Core> cores) {
  absl::MutexLock lock(&mutex_);
  launch_.runs.push_back({std::move(cores), absl::Now()});
  return launch_.runs.size() - 1;
}

void LaunchTimes::EndRun(size_t run) {
  absl::MutexLock lock(&mutex_);
  launch_.runs[run].end = absl::Now();
}

void LaunchTimes::End() {
  absl::MutexLock lock(&mutex_);
  launch_.end = absl::Now();
}

TimedLaunch LaunchTimes::Get() const {
  absl::MutexLock lock(&mutex_);
  return launch_;
}

std::shared_ptr<LaunchTimes> FirstLaunches::Begin(int64_t program_id, RunId run_id) {
  if (full_.load(std::memory_order_relaxed)) return nullptr;
  absl::MutexLock lock(&mutex_);
  if (launches_.size() >= kMost || of_program_[program_id] >= kMostOfProgram) return nullptr;
  ++of_program_[program_id];
  TimedLaunch launch;
  launch.program_id = program_id;
  launch.run_id = run_id;
  launch.begin = absl::Now();
  launches_.push_back(std::make_shared<LaunchTimes>(std::move(launch)));
  full_.store(launches_.size() >= kMost, std::memory_order_relaxed);
  return launches_.back();
}

std::vector<TimedLaunch> FirstLaunches::Get() const {
  absl::MutexLock lock(&mutex_);
  std::vector<TimedLaunch> launches;
  for (const std::shared_ptr<LaunchTimes>& each : launches_) launches.push_back(each->Get());
  return launches;
}

}  // namespace tf_tpu_ext
