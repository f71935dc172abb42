// The tables of a configured TPU embedding, and the steps that look up and update them.
//
// A step's lookups see the updates of all cores from all earlier training steps; an update applies
// the gradients of all cores at once. Cores need not stay in step with each other: one that comes
// early leaves a callback. No core blocks its thread: lookups and updates take turns, and whoever
// ends a turn schedules what may come next.
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

// Thread-safe. Programs call Receive and Send on their own threads, the wait monitor calls Cancel,
// and host ops and the ends of launches call the rest. Callbacks are called without a lock, and may
// call the engine again.
class EmbeddingEngine : public std::enable_shared_from_this<EmbeddingEngine> {
 public:
  using WaitId = int64_t;
  using Done = std::function<void(absl::Status)>;
  using Schedule = std::function<void(std::function<void()>)>;

  // `schedule` runs updates and lookups that had to wait.
  static absl::StatusOr<std::shared_ptr<EmbeddingEngine>> Create(
      const tensorflow::tpu::TPUEmbeddingConfiguration& config, Schedule schedule);

  const EmbeddingLayout& layout() const { return layout_; }

  // The names of a table's slots, see RowOptimizer::slots.
  const std::vector<std::string>& slots(int table) const {
    return tables_[table].optimizer.slots();
  }

  // Sets the given rows of a table and of its slots, all of shape [rows, dim]; rows that are never
  // set are zeros. Like Retrieve, blocks until the updates of all complete steps are made.
  absl::Status Load(int table, absl::Span<const int64_t> rows,
                    absl::Span<const absl::Span<const float>> states);

  // Reads them, including those updates.
  void Retrieve(int table, absl::Span<const int64_t> rows, absl::Span<float* const> states);

  // Looks up the core's next batch and writes the activations to `outputs`, one for each output of
  // the layout, before it calls `done`. Returns an id for Cancel. `owner` is the launch whose abort
  // ends the wait.
  WaitId Receive(int core, int64_t owner, std::shared_ptr<const EmbeddingBatch> batch,
                 std::vector<float*> outputs, Done done);

  // Takes the gradients of the core's last training batch. When the last core of a step has sent
  // its gradients, the tables are updated.
  absl::Status Send(int core, absl::Span<const float* const> gradients,
                    std::vector<float> dynamic_inputs);

  // Ends a wait with `status`; returns false if it is already over.
  bool Cancel(WaitId id, const absl::Status& status);

  // Ends the waits of a launch.
  void Abort(int64_t owner, const absl::Status& status);

  // Called when a step has failed: forgets all incomplete steps and ends all waits.
  void Reset(const absl::Status& status);

  // What a core that waits for its next batch is waiting for.
  std::string DescribeWait(int core) const;

 private:
  struct Table {
    RowOptimizer optimizer;
    // The parameters, then the slots, each [rows, dim].
    std::vector<std::vector<float>> states;
    // For the lookup; empty bounds and zero buckets mean none.
    tensorflow::tpu::SimulatedQuantization quantization;
  };
  // Gradients with respect to rows of a table, each row once.
  struct TableGradients {
    std::vector<int64_t> ids;
    std::vector<float> values;
  };
  struct CoreGradients {
    std::vector<TableGradients> tables;
    std::vector<float> dynamic_inputs;
  };
  struct Core {
    // How many training batches it has taken, not counting failed ones.
    int64_t training_steps = 0;
    // The last one, until its gradients arrive.
    std::shared_ptr<const EmbeddingBatch> owes;
  };
  struct TrainingStep {
    std::map<int, CoreGradients> gradients;
    // How many cores have looked up the next training step (with pipelining).
    int passed_by = 0;
    // Whether its update may be made before all cores have looked up the next step.
    bool flushed = false;
  };
  // A lookup that must see more updates than there are so far. Whoever removes it from `waiters_`
  // calls either `run`, which calls the callback, or `done` with an error.
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
  // Allows the updates of all complete steps; returns the last of these steps.
  int64_t Flush() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the work that may begin now, for ScheduleAll: lookups, or else an update.
  Work Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Without the lock, because scheduled work may call the engine again.
  void ScheduleAll(Work work) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Begins a turn of a host thread, which ends with FinishLookup or FinishWriting.
  void WaitForUpdates(bool to_write);
  void FinishWriting(int64_t updates);

  void MakeUpdate();
  void UpdateTable(int number, const TrainingStep& step);
  // Makes one update for each core that has a gradient for the row.
  void UpdateCoreByCore(int number, const TrainingStep& step);
  // The rows are distinct, and there is a row of gradients for each.
  void UpdateRows(int number, const TrainingStep& step, absl::Span<const int64_t> rows,
                  const float* gradients);

  const EmbeddingLayout layout_;
  const Schedule schedule_;

  // Guards the progress of the cores; never held while tables are read or written.
  mutable absl::Mutex mutex_;
  // A core is added at its first call.
  std::map<int, Core> cores_ ABSL_GUARDED_BY(mutex_);
  // Training steps count from one: how many have been applied, and the steps after those.
  int64_t updates_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, TrainingStep> steps_ ABSL_GUARDED_BY(mutex_);
  WaitId next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::vector<Waiter> waiters_ ABSL_GUARDED_BY(mutex_);
  // Whose turn it is to use the tables' states: `lookups_` readers, or one writer.
  int lookups_ ABSL_GUARDED_BY(mutex_) = 0;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;

  // The set of tables, their optimizers and their quantization do not change once the engine is
  // created.
  std::vector<Table> tables_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_EMBEDDING_ENGINE_H_
