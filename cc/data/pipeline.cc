#include "cc/data/pipeline.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/base/const_init.h"
#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

// When a process is gone, whoever watches it reports why, through Pipeline::Fail and within this
// time.
constexpr absl::Duration kLongestExplanation = absl::Seconds(15);

absl::Status NoneHere() {
  return absl::UnknownError(
      "The pipeline is not of this process, or has ended with its dataset, of which the program "
      "kept nothing but tensors. Keep the dataset that tf_tpu_ext.io.dataset returned, and use it "
      "in the process that made it.");
}

absl::Mutex all_mutex(absl::kConstInit);
int64_t last_number ABSL_GUARDED_BY(all_mutex) = 0;

absl::flat_hash_map<int64_t, std::shared_ptr<Pipeline>>& All()
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(all_mutex) {
  static auto* all = new absl::flat_hash_map<int64_t, std::shared_ptr<Pipeline>>;
  return *all;
}

}  // namespace

int64_t Pipeline::Add() {
  absl::MutexLock lock(&all_mutex);
  All()[++last_number] = std::make_shared<Pipeline>();
  return last_number;
}

void Pipeline::Remove(int64_t number) {
  absl::MutexLock lock(&all_mutex);
  All().erase(number);
}

absl::StatusOr<std::shared_ptr<Pipeline>> Pipeline::Find(int64_t number) {
  absl::MutexLock lock(&all_mutex);
  const auto found = All().find(number);
  if (found == All().end()) return NoneHere();
  return found->second;
}

void Pipeline::InterruptAll() {
  std::vector<std::shared_ptr<Pipeline>> pipelines;
  {
    absl::MutexLock lock(&all_mutex);
    for (const auto& [number, pipeline] : All()) pipelines.push_back(pipeline);
  }
  for (const std::shared_ptr<Pipeline>& pipeline : pipelines) pipeline->Interrupt();
}

void Pipeline::AddProcess(OwnedFile requests) {
  absl::MutexLock lock(&mutex_);
  processes_.push_back(std::move(requests));
}

void Pipeline::Fail(absl::string_view error) {
  absl::MutexLock lock(&mutex_);
  if (!error_.empty()) return;
  error_ = std::string(error);
  for (PipelineIteration* const iteration : iterations_) iteration->Wake();
}

void Pipeline::Interrupt() {
  absl::MutexLock lock(&mutex_);
  for (PipelineIteration* const iteration : iterations_) {
    iteration->Cancel(absl::UnknownError(
        "Ctrl-C ended the iteration over a pipeline. To go on, make a new iterator."));
  }
}

void Pipeline::Close() {
  absl::MutexLock lock(&mutex_);
  closed_ = true;
}

int Pipeline::iterations() {
  absl::MutexLock lock(&mutex_);
  return static_cast<int>(iterations_.size());
}

absl::Duration Pipeline::LongestWait() {
  absl::MutexLock lock(&mutex_);
  const int64_t now = absl::GetCurrentTimeNanos();
  int64_t longest = 0;
  for (PipelineIteration* const iteration : iterations_) {
    const int64_t since = iteration->waits_since_;
    if (since != 0) longest = std::max(longest, now - since);
  }
  return absl::Nanoseconds(longest);
}

absl::StatusOr<std::unique_ptr<PipelineIteration>> Pipeline::Iterate() {
  OwnedFile wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (wake.get() < 0) return absl::ErrnoToStatus(errno, "A pipeline can't be iterated over");
  // Without make_unique, because the constructor is private.
  std::unique_ptr<PipelineIteration> iteration(
      new PipelineIteration(shared_from_this(), std::move(wake)));
  TF_RETURN_IF_ERROR(error());
  absl::MutexLock next_lock(&iteration->next_mutex_);
  absl::MutexLock lock(&mutex_);
  if (closed_) return NoneHere();
  ++iterated_;
  for (const OwnedFile& process : processes_) {
    absl::StatusOr<std::unique_ptr<PipelineChannel>> channel =
        PipelineChannel::Open(process.get(), iterated_);
    TF_RETURN_IF_ERROR(channel.status());
    iteration->channels_.push_back(*std::move(channel));
  }
  iterations_.insert(iteration.get());
  return iteration;
}

void Pipeline::Forget(PipelineIteration* iteration) {
  absl::MutexLock lock(&mutex_);
  iterations_.erase(iteration);
}

absl::Status Pipeline::error() {
  absl::MutexLock lock(&mutex_);
  // Not a code that makes TensorFlow's loops continue or start over.
  return error_.empty() ? absl::OkStatus() : absl::UnknownError(error_);
}

PipelineIteration::~PipelineIteration() { pipeline_->Forget(this); }

absl::Status PipelineIteration::Next(std::vector<tensorflow::Tensor>* element, bool* end) {
  absl::MutexLock lock(&next_mutex_);
  const auto no_more_waiting = absl::MakeCleanup([this] { waits_since_ = 0; });
  *end = false;
  while (true) {
    TF_RETURN_IF_ERROR(Ending());
    TF_ASSIGN_OR_RETURN(const bool found, TryNext(element, end));
    if (found || *end) return absl::OkStatus();
    Wait();
  }
}

void PipelineIteration::Cancel(const absl::Status& why) {
  {
    absl::MutexLock lock(&mutex_);
    ending_.Update(why);
  }
  Wake();
}

void PipelineIteration::Wake() {
  const uint64_t one = 1;
  // Fails only if it is already awake.
  (void)!write(wake_.get(), &one, sizeof(one));
}

absl::Status PipelineIteration::Ending() {
  {
    absl::MutexLock lock(&mutex_);
    TF_RETURN_IF_ERROR(ending_);
  }
  return pipeline_->error();
}

absl::StatusOr<bool> PipelineIteration::TryNext(std::vector<tensorflow::Tensor>* element,
                                                bool* end) {
  if (absl::Now() > explained_by_) {
    Cancel(absl::UnknownError("A process of the pipeline has ended, or given up, without a word."));
    return Ending();
  }
  *end = explained_by_ == absl::InfiniteFuture();
  for (size_t i = 0; i < channels_.size(); ++i) {
    // The processes take turns.
    PipelineChannel& channel = *channels_[turn_];
    turn_ = (turn_ + 1) % channels_.size();
    if (channel.ended()) continue;
    TF_ASSIGN_OR_RETURN(Received received, channel.Receive());
    switch (received.kind) {
      case Received::kElement:
        *end = false;
        *element = std::move(received.element);
        return true;
      case Received::kError:
        Cancel(absl::UnknownError(received.error));
        return Ending();
      case Received::kGone:
        explained_by_ = absl::Now() + kLongestExplanation;
        *end = false;
        break;
      case Received::kNothingYet:
        *end = false;
        break;
      case Received::kEnd:
        break;
    }
  }
  return false;
}

void PipelineIteration::Wait() {
  std::vector<pollfd> files = {{wake_.get(), POLLIN, 0}};
  for (const std::unique_ptr<PipelineChannel>& channel : channels_) {
    if (!channel->ended()) files.push_back({channel->socket(), POLLIN, 0});
  }
  const absl::Duration longest = explained_by_ - absl::Now();
  const int timeout = longest == absl::InfiniteDuration()
                          ? -1
                          : static_cast<int>(absl::ToInt64Milliseconds(longest)) + 1;
  // If a signal interrupts the wait, the caller tries again; that counts as the same wait.
  if (waits_since_ == 0) waits_since_ = absl::GetCurrentTimeNanos();
  (void)poll(files.data(), files.size(), std::max(timeout, -1));
}

}  // namespace tf_tpu_ext
