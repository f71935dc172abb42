// What happens to a step's transfers when it ends: channels of the launch, queues of the cores,
// batches of embeddings.
#ifndef TF_TPU_EXT_CC_RUNTIME_LAUNCH_TRANSFERS_H_
#define TF_TPU_EXT_CC_RUNTIME_LAUNCH_TRANSFERS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cc/base/core_numbers.h"
#include "cc/base/launch_numbers.h"
#include "cc/program/taken_queues.h"

namespace tf_tpu_ext {

// Thread-safe. Calls back the receivers and senders whose waits end before returning.
class LaunchTransfers {
 public:
  virtual ~LaunchTransfers() = default;

  // The program's cores have failed, so whatever its transfers wait for will not arrive.
  virtual void Abort(LaunchId launch_id, const absl::Status& status) = 0;

  // The program's cores are done. The host may still read what they sent last.
  virtual void Finish(LaunchId launch_id) = 0;

  // A program that takes from queues has failed in the step. Whatever they hold for its cores, and
  // whatever the step still sends, was meant for this program and must not reach the next one. The
  // step's senders get `status`, the program's error. Embedding steps involve all cores, so all
  // cores drop theirs.
  virtual void DropQueued(const TakenQueues& queues, absl::Span<const Core> cores, int64_t step_id,
                          const absl::Status& status) = 0;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_LAUNCH_TRANSFERS_H_
