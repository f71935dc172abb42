// The transfers of this process's launches.
#ifndef TF_TPU_EXT_CC_RUNTIME_STEP_TRANSFERS_H_
#define TF_TPU_EXT_CC_RUNTIME_STEP_TRANSFERS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cc/base/core_numbers.h"
#include "cc/base/launch_numbers.h"
#include "cc/base/machine.h"
#include "cc/embedding/current_embedding.h"
#include "cc/program/taken_queues.h"
#include "cc/runtime/launch_transfers.h"
#include "cc/transfer/channels.h"

namespace tf_tpu_ext {

class StepTransfers : public LaunchTransfers {
 public:
  StepTransfers(const Machine* machine, TensorChannels* channels, EmbeddingSlot* embedding)
      : machine_(*machine), channels_(*channels), embedding_(*embedding) {}

  void Abort(LaunchId launch_id, const absl::Status& status) override;
  void Finish(LaunchId launch_id) override;
  void DropQueued(const TakenQueues& queues, absl::Span<const Core> cores, int64_t step_id,
                  const absl::Status& status) override;

  // The TPU system is being reset or shut down: afterwards nothing is queued on any core, and no
  // embedding is configured.
  void DropAllQueued();

 private:
  void DrainAllCores(const char* name);

  const Machine& machine_;
  TensorChannels& channels_;
  EmbeddingSlot& embedding_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_STEP_TRANSFERS_H_
