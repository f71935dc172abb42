// The tables of a configured TPU embedding, and the steps that look up and update them.
//
// A step's lookups see the updates of all training steps before it, of all cores; an update is made
// of the gradients of all cores at once. Cores need not keep step with each other: who comes early
// leaves a callback. No core waits on its thread: lookups and updates take turns, and whoever ends
// a turn schedules what may come next.
#ifndef TF_TPU_EXT_CC_EMBEDDING_ENGINE_H_
#define TF_TPU_EXT_CC_EMBEDDING_ENGINE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "cc/embedding/batch.h"
#include "cc/embedding/layout.h"
#include "cc/embedding/row_optimizer.h"
#include "tensorflow/core/protobuf/tpu/tpu_embedding_configuration.pb.h"

namespace tf_tpu_ext {

// Thread-safe. Programs call Receive and Send on their own threads, ops on the host and the ends of
// launches the rest, the wait monitor Cancel. Callbacks are called without a lock: they may call
// the engine again.
class EmbeddingEngine : public std::enable_shared_from_this<EmbeddingEngine> {
 public:
  using WaitId = int64_t;
  using Done = std::function<void(absl::Status)>;
  using Schedule = std::function<void(std::function<void()>)>;

  // `schedule` runs updates, and lookups that had to wait.
  static absl::StatusOr<std::shared_ptr<EmbeddingEngine>> Create(
      const tensorflow::tpu::TPUEmbeddingConfiguration& config, Schedule schedule);

  const EmbeddingLayout& layout() const { return layout_; }

  // The names of a table's slots, see RowOptimizer::slots.
  const std::vector<std::string>& slots(int table) const {
    return tables_[table].optimizer.slots();
  }

  // Sets the given rows of a table and of its slots, all of shape [rows, dim]; rows never set are
  // zeros. Blocks, as Retrieve does, until the updates of all complete steps are made.
  absl::Status Load(int table, absl::Span<const int64_t> rows,
                    absl::Span<const absl::Span<const float>> states);

  // Reads them, with those updates.
  void Retrieve(int table, absl::Span<const int64_t> rows, absl::Span<float* const> states);

  // Looks up the core's next batch, and writes the activations to `outputs`, one for each output of
  // the layout, before it calls `done`. Returns a number for Cancel. `owner` is the launch whose
  // abort ends the wait.
  WaitId Receive(int core, int64_t owner, std::shared_ptr<const EmbeddingBatch> batch,
                 std::vector<float*> outputs, Done done);

  // Takes the gradients of the core's last training batch. With those of the last core of a step,
  // the tables are updated.
  absl::Status Send(int core, absl::Span<const float* const> gradients,
                    std::vector<float> dynamic_inputs);

  // Ends a wait with `status`; returns false if it is over already.
  bool Cancel(WaitId id, const absl::Status& status);

  // Ends the waits of a launch.
  void Abort(int64_t owner, const absl::Status& status);

  // A step has failed: forgets all steps that are not complete, and ends all waits.
  void Reset(const absl::Status& status);

  // What a core that waits for its next batch waits for.
  std::string DescribeWait(int core) const;

 private:
  struct Table {
    RowOptimizer optimizer;
    // The parameters and then the slots, each [rows, dim].
    std::vector<std::vector<float>> states;
    // For the lookup; empty bounds and zero buckets mean none.
    tensorflow::tpu::SimulatedQuantization quantization;
  };
  // Gradients with regard to rows of a table, each row once.
  struct TableGradients {
    std::vector<int64_t> ids;
    std::vector<float> values;
  };
  struct CoreGradients {
    std::vector<TableGradients> tables;
    std::vector<float> dynamic_inputs;
  };
  struct Core {
    // Training batches that it has taken, failed ones aside.
    int64_t training_steps = 0;
    // The last one, until its gradients come.
    std::shared_ptr<const EmbeddingBatch> owes;
  };
  struct TrainingStep {
    std::map<int, CoreGradients> gradients;
    // Cores that have looked up a later training step (with pipelining).
    int passed_by = 0;
    // Whether it is updated though lookups of the next step could still miss it.
    bool flushed = false;
  };
  // A lookup that must see more updates than there are. Whoever takes it out of `waiters_` calls
  // either `run`, which calls the callback, or `done` with an error.
  struct Waiter {
    WaitId id;
    int core;
    int64_t owner;
    int64_t needed_updates;
    std::function<void()> run;
    Done done;
  };

  EmbeddingEngine(EmbeddingLayout layout, Schedule schedule)
      : layout_(std::move(layout)), schedule_(std::move(schedule)) {}

  using Work = std::vector<std::function<void()>>;

  Core& CoreOf(int core) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LookUp(const EmbeddingBatch& batch, const std::vector<float*>& outputs) const;
  void FinishLookup(int64_t training_step);
  TableGradients GradientsOf(int table, const EmbeddingBatch& batch,
                             absl::Span<const float* const> gradients) const;

  bool IsComplete(int64_t training_step) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the next update may be made.
  bool IsDue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Lets all complete steps be updated; returns the last of them.
  int64_t Flush() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns what may begin now, for ScheduleAll: lookups, or else an update.
  Work Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Without the lock: what is scheduled may come back here.
  void ScheduleAll(Work work) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Begins a turn of a thread of the host, which ends by FinishLookup or FinishWriting.
  void WaitForUpdates(bool to_write);
  void FinishWriting(int64_t updates);

  void MakeUpdate();
  void UpdateTable(int number, const TrainingStep& step);
  // One update for each core that has a gradient of the row.
  void UpdateCoreByCore(int number, const TrainingStep& step);
  void UpdateRow(int number, const TrainingStep& step, int64_t row, const float* gradient);

  const EmbeddingLayout layout_;
  const Schedule schedule_;

  // Guards who is how far; never held while tables are read or written.
  mutable absl::Mutex mutex_;
  // A core is added when it first comes.
  std::map<int, Core> cores_ ABSL_GUARDED_BY(mutex_);
  // Training steps that count up from one: how many have been applied, and those after.
  int64_t updates_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, TrainingStep> steps_ ABSL_GUARDED_BY(mutex_);
  WaitId next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::vector<Waiter> waiters_ ABSL_GUARDED_BY(mutex_);
  // Whose turn it is at the tables' states: `lookups_` that read them, or one that writes them.
  int lookups_ ABSL_GUARDED_BY(mutex_) = 0;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;

  // Which tables there are, their optimizers and their quantization do not change once the engine
  // is created.
  std::vector<Table> tables_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_EMBEDDING_ENGINE_H_
