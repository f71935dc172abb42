#include "cc/runtime/step_transfers.h"

namespace tf_tpu_ext {

void StepTransfers::Abort(LaunchId launch_id, const absl::Status& status) {
  channels_.Abort(launch_id.value(), status);
  if (auto engine = embedding_.engine()) engine->Abort(launch_id.value(), status);
}

void StepTransfers::Finish(LaunchId launch_id) { channels_.Finish(launch_id.value()); }

void StepTransfers::DropQueued(const TakenQueues& queues, absl::Span<const Core> cores,
                               int64_t step_id, const absl::Status& status) {
  // Senders come first. Otherwise, whatever the step still sends would fill the queues again.
  channels_.DropSentBy(step_id, status);
  if (queues.infeed) {
    for (Core core : cores) channels_.Drain({kNoLaunch, kInfeedName, core.value()});
  }
  if (queues.embedding) {
    DrainAllCores(kEmbeddingName);
    if (auto engine = embedding_.engine()) engine->Reset(status);
  }
}

void StepTransfers::DropAllQueued() {
  for (const char* name : {kInfeedName, kOutfeedName, kEmbeddingName}) DrainAllCores(name);
  embedding_.Drop();
}

void StepTransfers::DrainAllCores(const char* name) {
  const int cores = machine_.options().cores;
  for (int core = 0; core < cores; ++core) channels_.Drain({kNoLaunch, name, core});
}

}  // namespace tf_tpu_ext
