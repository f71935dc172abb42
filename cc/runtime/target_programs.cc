#include "cc/runtime/target_programs.h"

#include <utility>

namespace tf_tpu_ext {

void TargetPrograms::Add(TargetProgram program) {
  absl::MutexLock lock(&mutex_);
  ++added_;
  programs_.push_back(std::move(program));
}

std::optional<TargetProgram> TargetPrograms::Take() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &TargetPrograms::HasNews));
  if (programs_.empty()) {
    --woken_;
    return std::nullopt;
  }
  TargetProgram program = std::move(programs_.front());
  programs_.pop_front();
  return program;
}

void TargetPrograms::Wake() {
  absl::MutexLock lock(&mutex_);
  ++woken_;
}

int64_t TargetPrograms::added() const {
  absl::MutexLock lock(&mutex_);
  return added_;
}

}  // namespace tf_tpu_ext
