#include "cc/transfer/channels.h"

#include <cstdint>
#include <deque>
#include <limits>

#include "absl/base/const_init.h"
#include "absl/synchronization/mutex.h"
#include "cc/base/machine.h"
#include "cc/embedding/current_embedding.h"

namespace tf_tpu_ext {
namespace {

// Finished launches whose last messages or errors the host may still ask for.
constexpr size_t kRememberedLaunches = 4096;

absl::Mutex mutex(absl::kConstInit);

void DrainAllCores(const char* name) {
  const int cores = GetMachineOptions().cores;
  for (int core = 0; core < cores; ++core) GetChannels().Drain({kNoLaunch, name, core});
}

}  // namespace

TensorChannels& GetChannels() {
  static auto* channels = new TensorChannels;
  return *channels;
}

void AbortTransfers(int64_t launch_id, const absl::Status& status) {
  GetChannels().Abort(launch_id, status);
  if (auto engine = CurrentEmbedding()) engine->Abort(launch_id, status);
}

int64_t OwnerOfStep(int64_t step_id) {
  // Launches count up from one; negative numbers are free.
  return -1 - (step_id & std::numeric_limits<int64_t>::max());
}

void DropSentBy(int64_t step_id, const absl::Status& status) {
  const int64_t owner = OwnerOfStep(step_id);
  GetChannels().Abort(owner, status);
  FinishTransfers(owner);
}

void DropQueued(const TakenQueues& queues, absl::Span<const int> cores, int64_t step_id,
                const absl::Status& status) {
  DropSentBy(step_id, status);
  if (queues.infeed) {
    for (int core : cores) GetChannels().Drain({kNoLaunch, kInfeedName, core});
  }
  if (queues.embedding) {
    DrainAllCores(kEmbeddingName);
    if (auto engine = CurrentEmbedding()) engine->Reset(status);
  }
}

void DropAllQueued() {
  for (const char* name : {kInfeedName, kOutfeedName, kEmbeddingName}) DrainAllCores(name);
  DropEmbedding();
}

void FinishTransfers(int64_t launch_id) {
  static auto* finished = new std::deque<int64_t>;
  int64_t forgotten = kNoLaunch;
  {
    absl::MutexLock lock(&mutex);
    // The rounds of a host loop are one launch.
    if (finished->empty() || finished->back() != launch_id) finished->push_back(launch_id);
    if (finished->size() > kRememberedLaunches) {
      forgotten = finished->front();
      finished->pop_front();
    }
  }
  if (forgotten == kNoLaunch) return;
  GetChannels().Forget(forgotten, absl::CancelledError("The TPU program ended long ago without "
                                                       "this transfer."));
}

}  // namespace tf_tpu_ext
