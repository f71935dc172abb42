#include "cc/base/after_cancellation.h"

#include <utility>

#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/status.h"

namespace tf_tpu_ext {
namespace {

// Long enough for an error to travel from an op to the end of the functions around it.
constexpr int64_t kMicroseconds = 100'000;

}  // namespace

void AfterCancellation(std::function<void()> end) {
  tensorflow::Env::Default()->SchedClosureAfter(kMicroseconds, std::move(end));
}

absl::Status Cancelled(absl::string_view message) {
  return tsl::StatusGroup::MakeDerived(absl::CancelledError(message));
}

}  // namespace tf_tpu_ext
