// The tables of a configured TPU embedding, and the steps that look up and update them.
//
// A step's lookups see the updates of all training steps before it, of all cores; an update is made
// of the gradients of all cores at once. Cores need not keep step with each other: who comes early
// leaves a callback.
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

  // `schedule` runs lookups that had to wait.
  static absl::StatusOr<std::shared_ptr<EmbeddingEngine>> Create(
      const tensorflow::tpu::TPUEmbeddingConfiguration& config, Schedule schedule);

  const EmbeddingLayout& layout() const { return layout_; }

  // The names of a table's slots, see RowOptimizer::slots.
  const std::vector<std::string>& slots(int table) const {
    return tables_[table].optimizer.slots();
  }

  // Sets the given rows of a table and of its slots, all of shape [rows, dim]; rows never set are
  // zeros.
  absl::Status Load(int table, absl::Span<const int64_t> rows,
                    absl::Span<const absl::Span<const float>> states);

  // Reads them, with the updates of all steps that are complete.
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

  Core& CoreOf(int core) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LookUp(const EmbeddingBatch& batch, const std::vector<float*>& outputs) const
      ABSL_LOCKS_EXCLUDED(tables_mutex_);
  void FinishLookup(int64_t training_step);
  TableGradients GradientsOf(int table, const EmbeddingBatch& batch,
                             absl::Span<const float* const> gradients) const;
  // Makes the updates that may be made now; takes out the waiters that this frees.
  void MakeUpdates(bool flush, std::vector<Waiter>* freed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Update(const TrainingStep& step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void UpdateTable(int number, const TrainingStep& step)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(tables_mutex_);
  // One update for each core that has a gradient of the row.
  void UpdateCoreByCore(int number, const TrainingStep& step)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(tables_mutex_);
  void UpdateRow(int number, const TrainingStep& step, int64_t row, const float* gradient)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(tables_mutex_);
  void ScheduleAll(std::vector<Waiter> freed) const;

  const EmbeddingLayout layout_;
  const Schedule schedule_;

  // Who is how far. Held while an update is made, never during a lookup.
  mutable absl::Mutex mutex_;
  // A core is added when it first comes.
  std::map<int, Core> cores_ ABSL_GUARDED_BY(mutex_);
  // Training steps that count up from one: how many have been applied, and those after.
  int64_t updates_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, TrainingStep> steps_ ABSL_GUARDED_BY(mutex_);
  WaitId next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::vector<Waiter> waiters_ ABSL_GUARDED_BY(mutex_);

  // Taken after mutex_; shared by lookups. Guards the states only: which tables there are, their
  // optimizers and their quantization do not change once the engine is created.
  mutable absl::Mutex tables_mutex_;
  std::vector<Table> tables_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_EMBEDDING_ENGINE_H_
