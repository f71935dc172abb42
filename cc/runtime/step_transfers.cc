#include "cc/runtime/step_transfers.h"

#include "cc/base/machine.h"
#include "cc/embedding/current_embedding.h"
#include "cc/transfer/channels.h"

namespace tf_tpu_ext {
namespace {

void DrainAllCores(const char* name) {
  const int cores = GetMachineOptions().cores;
  for (int core = 0; core < cores; ++core) GetChannels().Drain({kNoLaunch, name, core});
}

}  // namespace

void AbortTransfers(int64_t launch_id, const absl::Status& status) {
  GetChannels().Abort(launch_id, status);
  if (auto engine = CurrentEmbedding()) engine->Abort(launch_id, status);
}

void FinishTransfers(int64_t launch_id) { GetChannels().Finish(launch_id); }

void DropQueued(const TakenQueues& queues, absl::Span<const int> cores, int64_t step_id,
                const absl::Status& status) {
  // First the senders: what the step still sends would otherwise fill the queues again.
  GetChannels().DropSentBy(step_id, status);
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

}  // namespace tf_tpu_ext
