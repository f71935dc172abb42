#include "cc/embedding/engine.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cc/embedding/quantization.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {

using tensorflow::tpu::SimulatedQuantization;
using tensorflow::tpu::TPUEmbeddingConfiguration;

absl::StatusOr<std::shared_ptr<EmbeddingEngine>> EmbeddingEngine::Create(
    const TPUEmbeddingConfiguration& config, Schedule schedule) {
  TF_ASSIGN_OR_RETURN(EmbeddingLayout layout, EmbeddingLayout::Create(config));
  std::shared_ptr<EmbeddingEngine> engine(
      new EmbeddingEngine(std::move(layout), std::move(schedule)));
  for (const auto& described : config.table_descriptor()) {
    const auto& parameters = described.optimization_parameters();
    TF_ASSIGN_OR_RETURN(RowOptimizer optimizer,
                        RowOptimizer::Create(parameters, described.dimension()));
    TF_RETURN_IF_ERROR(CheckQuantization(described.name(), parameters.simulated_quantization()));
    Table table{std::move(optimizer), {}, parameters.simulated_quantization()};
    const size_t size = described.vocabulary_size() * described.dimension();
    table.states.resize(1 + table.optimizer.slots().size());
    for (std::vector<float>& state : table.states) state.assign(size, 0.0f);
    engine->tables_.push_back(std::move(table));
  }
  return engine;
}

absl::Status EmbeddingEngine::Load(int table, absl::Span<const int64_t> rows,
                                   absl::Span<const absl::Span<const float>> states) {
  const int dim = layout_.tables[table].dim;
  std::vector<std::vector<float>>& kept = tables_[table].states;
  if (states.size() != kept.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("Embedding table '", layout_.tables[table].name, "' is loaded with ",
                     states.size() - 1, " slots; its optimizer has ", kept.size() - 1, " (",
                     absl::StrJoin(tables_[table].optimizer.slots(), ", "),
                     "). Load it by the op of the optimizer that it was configured with."));
  }
  for (absl::Span<const float> state : states) {
    if (state.size() == rows.size() * dim) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("Embedding table '", layout_.tables[table].name, "' is loaded with ",
                     state.size(), " values; it has ", rows.size(), " rows of ", dim, "."));
  }
  WaitForUpdates(/*to_write=*/true);
  for (size_t s = 0; s < kept.size(); ++s) {
    for (size_t r = 0; r < rows.size(); ++r) {
      std::copy_n(states[s].begin() + r * dim, dim, kept[s].begin() + rows[r] * dim);
    }
  }
  FinishWriting(/*updates=*/0);
  return absl::OkStatus();
}

void EmbeddingEngine::Retrieve(int table, absl::Span<const int64_t> rows,
                               absl::Span<float* const> states) {
  WaitForUpdates(/*to_write=*/false);
  const int dim = layout_.tables[table].dim;
  const std::vector<std::vector<float>>& kept = tables_[table].states;
  for (size_t s = 0; s < states.size() && s < kept.size(); ++s) {
    for (size_t r = 0; r < rows.size(); ++r) {
      std::copy_n(kept[s].begin() + rows[r] * dim, dim, states[s] + r * dim);
    }
  }
  FinishLookup(/*training_step=*/0);
}

EmbeddingEngine::WaitId EmbeddingEngine::Receive(int core, int64_t owner,
                                                 std::shared_ptr<const EmbeddingBatch> batch,
                                                 std::vector<float*> outputs, Done done) {
  int64_t step = 0;
  mutex_.Lock();
  const WaitId id = next_id_++;
  Core& state = CoreOf(core);
  if (state.owes != nullptr) {
    mutex_.Unlock();
    done(absl::FailedPreconditionError(absl::StrCat(
        "Core ", core,
        " takes its next embedding batch, but never sent the gradients of the "
        "training batch before. Enqueue with training=False (mode_override 'inference') for a "
        "program that applies no gradients.")));
    return id;
  }
  // With pipelining, the lookup of a step overlaps the step before it, and misses its update.
  const bool overlaps = layout_.pipelined && batch->training;
  if (!overlaps) Flush();
  const auto last = steps_.find(state.training_steps);
  const bool misses_last = overlaps && last != steps_.end() && !last->second.flushed;
  const int64_t needed = state.training_steps - (misses_last ? 1 : 0);
  if (batch->training) {
    step = ++state.training_steps;
    state.owes = batch;
  }
  auto run = [self = shared_from_this(), batch = std::move(batch), outputs = std::move(outputs),
              step, done] {
    self->LookUp(*batch, outputs);
    self->FinishLookup(step);
    done(absl::OkStatus());
  };
  // The update of a training step can't come before the step's lookup: it needs the core's
  // gradients, which the core sends after the lookup. With pipelining, the update of the step
  // before waits for FinishLookup.
  const bool begins = updates_ >= needed && !writing_;
  if (begins) {
    ++lookups_;
  } else {
    waiters_.push_back({id, core, owner, needed, run, std::move(done)});
  }
  Work next = Advance();
  mutex_.Unlock();
  ScheduleAll(std::move(next));
  if (begins) run();
  return id;
}

// A core that calls for the first time has missed nothing.
EmbeddingEngine::Core& EmbeddingEngine::CoreOf(int core) {
  return cores_.emplace(core, Core{updates_, nullptr}).first->second;
}

void EmbeddingEngine::LookUp(const EmbeddingBatch& batch,
                             const std::vector<float*>& outputs) const {
  for (size_t o = 0; o < outputs.size(); ++o) {
    const EmbeddingLayout::Output& described = layout_.outputs[o];
    const int dim = layout_.tables[described.table].dim;
    const Table& table = tables_[described.table];
    const SimulatedQuantization& quantization = table.quantization;
    std::fill_n(outputs[o], described.rows * dim, 0.0f);
    const EmbeddingBatch::Lookups& lookups = batch.outputs[o];
    for (size_t k = 0; k < lookups.ids.size(); ++k) {
      const float* from = table.states[0].data() + lookups.ids[k] * dim;
      float* to = outputs[o] + lookups.rows[k] * dim;
      const float gain = lookups.gains[k];
      if (quantization.enabled()) {
        for (int i = 0; i < dim; ++i) to[i] += gain * Quantize(quantization, from[i]);
      } else {
        for (int i = 0; i < dim; ++i) to[i] += gain * from[i];
      }
    }
  }
}

// With pipelining, the update of a step must wait until all cores have looked up the next step, or
// some would see it and others would not.
void EmbeddingEngine::FinishLookup(int64_t training_step) {
  Work next;
  {
    absl::MutexLock lock(&mutex_);
    --lookups_;
    const auto before = steps_.find(training_step - 1);
    if (before != steps_.end()) ++before->second.passed_by;
    next = Advance();
  }
  ScheduleAll(std::move(next));
}

absl::Status EmbeddingEngine::Send(int core, absl::Span<const float* const> gradients,
                                   std::vector<float> dynamic_inputs) {
  for (const Table& table : tables_) {
    const int needed = table.optimizer.num_dynamic_inputs();
    if (needed <= static_cast<int>(dynamic_inputs.size())) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("Core ", core, " sends embedding gradients with ", dynamic_inputs.size(),
                     " learning rates; the configuration's tags need ", needed, "."));
  }
  std::shared_ptr<const EmbeddingBatch> batch;
  int64_t step;
  {
    absl::MutexLock lock(&mutex_);
    Core& state = CoreOf(core);
    // Removed, so that a second Send by this core for this step is refused.
    batch = std::move(state.owes);
    state.owes = nullptr;
    step = state.training_steps;
  }
  if (batch == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "Core ", core,
        " sends embedding gradients, but took no training batch before. Enqueue "
        "with training=True (mode_override 'train') for a program that applies gradients, and take "
        "the activations in the same program."));
  }
  // Summing a core's gradients by row needs no lock: the batch belongs to this core alone.
  CoreGradients given;
  given.dynamic_inputs = std::move(dynamic_inputs);
  for (size_t table = 0; table < tables_.size(); ++table) {
    given.tables.push_back(GradientsOf(static_cast<int>(table), *batch, gradients));
  }
  Work next;
  {
    absl::MutexLock lock(&mutex_);
    // If there was a reset in the meantime, the step is forgotten.
    if (CoreOf(core).training_steps == step) {
      steps_[step].gradients[core] = std::move(given);
      next = Advance();
    }
  }
  ScheduleAll(std::move(next));
  return absl::OkStatus();
}

EmbeddingEngine::TableGradients EmbeddingEngine::GradientsOf(
    int table, const EmbeddingBatch& batch, absl::Span<const float* const> gradients) const {
  const int dim = layout_.tables[table].dim;
  TableGradients sums;
  absl::flat_hash_map<int64_t, size_t> places;
  for (size_t o = 0; o < batch.outputs.size(); ++o) {
    if (layout_.outputs[o].table != table) continue;
    const EmbeddingBatch::Lookups& lookups = batch.outputs[o];
    for (size_t k = 0; k < lookups.ids.size(); ++k) {
      const auto [found, fresh] = places.emplace(lookups.ids[k], sums.ids.size());
      const size_t place = found->second;
      if (fresh) {
        sums.ids.push_back(lookups.ids[k]);
        sums.values.resize(sums.values.size() + dim, 0.0f);
      }
      const float* from = gradients[o] + lookups.rows[k] * dim;
      float* to = sums.values.data() + place * dim;
      for (int i = 0; i < dim; ++i) to[i] += lookups.gains[k] * from[i];
    }
  }
  return sums;
}

bool EmbeddingEngine::IsComplete(int64_t training_step) const {
  const auto step = steps_.find(training_step);
  return step != steps_.end() &&
         step->second.gradients.size() == static_cast<size_t>(layout_.num_cores);
}

// Updates are made in the order of their steps, each when the gradients of all cores have arrived.
bool EmbeddingEngine::IsDue() const {
  if (!IsComplete(updates_ + 1)) return false;
  const TrainingStep& step = steps_.at(updates_ + 1);
  return !layout_.pipelined || step.flushed || step.passed_by == layout_.num_cores;
}

int64_t EmbeddingEngine::Flush() {
  int64_t last = updates_;
  while (IsComplete(last + 1)) steps_[++last].flushed = true;
  return last;
}

EmbeddingEngine::Work EmbeddingEngine::Advance() {
  if (writing_) return {};
  Work next;
  std::vector<Waiter> waiting;
  for (Waiter& waiter : waiters_) {
    if (waiter.needed_updates > updates_) {
      waiting.push_back(std::move(waiter));
    } else {
      next.push_back(std::move(waiter.run));
    }
  }
  waiters_ = std::move(waiting);
  lookups_ += static_cast<int>(next.size());
  if (lookups_ == 0 && IsDue()) {
    writing_ = true;
    next.push_back([self = shared_from_this()] { self->MakeUpdate(); });
  }
  return next;
}

void EmbeddingEngine::ScheduleAll(Work work) const {
  for (std::function<void()>& piece : work) schedule_(std::move(piece));
}

void EmbeddingEngine::WaitForUpdates(bool to_write) {
  mutex_.Lock();
  const int64_t last = Flush();
  Work next = Advance();
  mutex_.Unlock();
  ScheduleAll(std::move(next));
  const auto may_begin = [this, last, to_write]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return updates_ >= last && !writing_ && (lookups_ == 0 || !to_write);
  };
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&may_begin));
  if (to_write) {
    writing_ = true;
  } else {
    ++lookups_;
  }
}

void EmbeddingEngine::FinishWriting(int64_t updates) {
  Work next;
  {
    absl::MutexLock lock(&mutex_);
    for (int64_t update = 0; update < updates; ++update) steps_.erase(++updates_);
    writing_ = false;
    next = Advance();
  }
  ScheduleAll(std::move(next));
}

void EmbeddingEngine::MakeUpdate() {
  const TrainingStep* step;
  {
    absl::MutexLock lock(&mutex_);
    step = &steps_.at(updates_ + 1);
  }
  // A complete step does not change until it is erased.
  for (size_t table = 0; table < tables_.size(); ++table) {
    UpdateTable(static_cast<int>(table), *step);
  }
  FinishWriting(/*updates=*/1);
}

void EmbeddingEngine::UpdateRows(int number, const TrainingStep& step,
                                 absl::Span<const int64_t> rows, const float* gradients) {
  Table& table = tables_[number];
  absl::InlinedVector<float*, 4> states;
  for (std::vector<float>& state : table.states) states.push_back(state.data());
  // All cores have the same rate for the same tag.
  table.optimizer.ApplyToRows(rows, gradients, step.gradients.begin()->second.dynamic_inputs,
                              states);
}

void EmbeddingEngine::UpdateCoreByCore(int number, const TrainingStep& step) {
  const int dim = layout_.tables[number].dim;
  const int64_t cores = static_cast<int64_t>(step.gradients.size());
  // The core that would hold the row on a real TPU comes first; rows are assigned to cores in turn.
  std::vector<std::tuple<int64_t, int64_t, const float*>> updates;
  int64_t place = 0;
  for (const auto& [core, given] : step.gradients) {
    const TableGradients& gradients = given.tables[number];
    for (size_t k = 0; k < gradients.ids.size(); ++k) {
      const int64_t id = gradients.ids[k];
      updates.emplace_back(id, (place + cores - id % cores) % cores,
                           gradients.values.data() + k * dim);
    }
    ++place;
  }
  std::sort(updates.begin(), updates.end());
  for (const auto& [row, turn, gradient] : updates) UpdateRows(number, step, {row}, gradient);
}

void EmbeddingEngine::UpdateTable(int number, const TrainingStep& step) {
  const RowOptimizer& optimizer = tables_[number].optimizer;
  if (!optimizer.accumulates()) {
    UpdateCoreByCore(number, step);
    return;
  }
  const int dim = layout_.tables[number].dim;
  // In the order of the cores, so that sums do not depend on which core came first.
  TableGradients sums;
  absl::flat_hash_map<int64_t, size_t> places;
  for (const auto& [core, given] : step.gradients) {
    const TableGradients& gradients = given.tables[number];
    for (size_t k = 0; k < gradients.ids.size(); ++k) {
      const auto [place, fresh] = places.emplace(gradients.ids[k], sums.ids.size());
      if (fresh) {
        sums.ids.push_back(gradients.ids[k]);
        sums.values.resize(sums.values.size() + dim, 0.0f);
      }
      float* to = sums.values.data() + place->second * dim;
      const float* from = gradients.values.data() + k * dim;
      for (int i = 0; i < dim; ++i) to[i] += from[i];
    }
  }
  UpdateRows(number, step, sums.ids, sums.values.data());
  if (!optimizer.updates_all_rows()) return;
  const std::vector<float> zeros(dim, 0.0f);
  for (int64_t row = 0; row < layout_.tables[number].rows; ++row) {
    if (!places.contains(row)) UpdateRows(number, step, {row}, zeros.data());
  }
}

bool EmbeddingEngine::Cancel(WaitId id, const absl::Status& status) {
  Done done;
  {
    absl::MutexLock lock(&mutex_);
    auto found = std::find_if(waiters_.begin(), waiters_.end(),
                              [id](const Waiter& waiter) { return waiter.id == id; });
    if (found == waiters_.end()) return false;
    done = std::move(found->done);
    waiters_.erase(found);
  }
  done(status);
  return true;
}

void EmbeddingEngine::Abort(int64_t owner, const absl::Status& status) {
  std::vector<Done> ended;
  {
    absl::MutexLock lock(&mutex_);
    for (auto it = waiters_.begin(); it != waiters_.end();) {
      if (it->owner != owner) {
        ++it;
        continue;
      }
      ended.push_back(std::move(it->done));
      it = waiters_.erase(it);
    }
  }
  for (Done& done : ended) done(status);
}

void EmbeddingEngine::Reset(const absl::Status& status) {
  std::vector<Waiter> ended;
  Work next;
  {
    absl::MutexLock lock(&mutex_);
    // Complete steps stay, including those that pipelining holds back.
    const int64_t last = Flush();
    ended.swap(waiters_);
    steps_.erase(steps_.upper_bound(last), steps_.end());
    for (auto& [core, state] : cores_) state = {last, nullptr};
    next = Advance();
  }
  ScheduleAll(std::move(next));
  for (Waiter& waiter : ended) waiter.done(status);
}

std::string EmbeddingEngine::DescribeWait(int core) const {
  absl::MutexLock lock(&mutex_);
  std::vector<int> here;
  if (auto step = steps_.find(updates_ + 1); step != steps_.end()) {
    for (const auto& [sender, gradients] : step->second.gradients) here.push_back(sender);
  }
  return absl::StrCat("core ", core, " waits for the update of training step ", updates_ + 1,
                      ", which has the gradients of cores [", absl::StrJoin(here, ", "),
                      "] and needs those of ", layout_.num_cores, " cores");
}

}  // namespace tf_tpu_ext
