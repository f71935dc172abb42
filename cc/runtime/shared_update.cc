#include "cc/runtime/shared_update.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cc/base/compute_pool.h"
#include "cc/profile/recorder.h"
#include "cc/runtime/collectives.h"
#include "cc/runtime/program.h"
#include "cc/runtime/run_in_place.h"
#include "tsl/profiler/lib/traceme.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::Tensor;

// The number of elements that one thread combines at a time.
constexpr int64_t kChunk = 1 << 16;

constexpr StepRun kFirst(0);

// Runs through its stages in order: Start and Combine, RunUpdate, Finish. Several threads may work
// on one stage, but the last one to finish it begins the next. So only what they write at the same
// time needs a lock.
class UpdateRun : public std::enable_shared_from_this<UpdateRun> {
 public:
  using Done = std::function<void(absl::Status, ByNumber<StepRun, Outputs>)>;

  UpdateRun(const LaunchServices& services, std::shared_ptr<Program> program,
            ByNumber<StepRun, UpdateReplica> replicas, Done done)
      : pool_(*services.compute_pool),
        recorder_(services.recorder),
        run_locking_(services.run_locking),
        program_(std::move(program)),
        update_(program_->compiled().shared_update.get()),
        replicas_(std::move(replicas)),
        done_(std::move(done)) {}

  void Start() {
    combines_from_ = NowIfRecording(recorder_);
    for (size_t i = 0; i < update_->combinations.size(); ++i) {
      // The first replica's buffer receives the result.
      combined_.push_back(replicas_[kFirst].outputs[OutputToCombine(i)]);
      const Combination& combination = update_->combinations[i];
      if (combination.kind == Combination::kFirst || combination.by_update) continue;
      const int64_t elements = combined_.back().NumElements();
      for (int64_t at = 0; at < elements; at += kChunk) {
        chunks_.push_back({i, at, std::min(kChunk, elements - at)});
      }
    }
    Combine();
  }

 private:
  struct Chunk {
    size_t combination;
    int64_t offset;
    int64_t elements;
  };

  // The output of the replicas' program that goes into a combination.
  OutputNumber OutputToCombine(size_t combination) const {
    return OutputNumber(update_->replica_outputs.size() + static_cast<int>(combination));
  }

  // Distributes the chunks over as many threads as there is work for: this one, which would only
  // wait otherwise, and others of the pool.
  void Combine() {
    const int workers = std::min<int>(pool_.NumThreads(), static_cast<int>(chunks_.size()));
    if (workers <= 1) {
      CombineChunks();
      return RunUpdate();
    }
    working_ = workers;
    auto work = [self = shared_from_this()] {
      self->CombineChunks();
      if (self->working_.fetch_sub(1) == 1) self->RunUpdate();
    };
    for (int i = 1; i < workers; ++i) pool_.Schedule(work);
    work();
  }

  void CombineChunks() {
    tsl::profiler::TraceMe trace("TPU combine gradients");
    std::vector<const void*> values(replicas_.size());
    while (true) {
      const size_t next = next_chunk_.fetch_add(1);
      if (next >= chunks_.size()) return;
      const Chunk& chunk = chunks_[next];
      const OutputNumber output = OutputToCombine(chunk.combination);
      for (StepRun run : replicas_.numbers()) {
        values[run.value()] = replicas_[run].outputs[output].data();
      }
      absl::Status status =
          CombineBuffers(update_->combinations[chunk.combination], values, chunk.offset,
                         chunk.elements, combined_[chunk.combination].data());
      if (!status.ok()) {
        absl::MutexLock lock(&mutex_);
        status_.Update(status);
      }
    }
  }

  void RunUpdate() {
    if (combines_from_.has_value()) combined_until_ = NowIfRecording(recorder_);
    absl::Status status;
    {
      absl::MutexLock lock(&mutex_);
      status = status_;
    }
    if (!status.ok()) return Finish(std::move(status));
    if (!HaveEqualArguments()) return RunForEachReplica();
    if (!MayRunInPlace(update_->updated_variables, replicas_[kFirst].arguments, Owners())) {
      return RunFor(kFirst, ArgumentsFor(kFirst), OptionsFor(AllCores()),
                    [self = shared_from_this()](absl::Status status, const Outputs& outputs) {
                      self->FinishForAll(std::move(status), outputs);
                    });
    }
    // A thread of the compute pool must not wait for the others, and the thread that acquires the
    // locks must release them.
    if (!pool_.IsCaller()) return UpdateInPlace();
    run_locking_([self = shared_from_this()] { self->UpdateInPlace(); });
  }

  bool HaveEqualArguments() const {
    for (ArgumentNumber argument : update_->read_arguments) {
      const Tensor& first = replicas_[kFirst].arguments[argument];
      for (const UpdateReplica& replica : replicas_) {
        if (!HaveEqualBytes(first, replica.arguments[argument])) return false;
      }
    }
    return true;
  }

  std::vector<const ArgumentVariables*> Owners() const {
    std::vector<const ArgumentVariables*> owners;
    for (const UpdateReplica& replica : replicas_) {
      for (const auto& variables : replica.variables) owners.push_back(variables.get());
    }
    return owners;
  }

  std::vector<Core> AllCores() const {
    std::vector<Core> cores;
    for (const UpdateReplica& replica : replicas_) {
      cores.insert(cores.end(), replica.cores.begin(), replica.cores.end());
    }
    return cores;
  }

  void UpdateInPlace() {
    Arguments arguments = ArgumentsFor(kFirst);
    for (UpdateReplica& replica : replicas_) replica.arguments.clear();
    Outputs outputs;
    absl::Status status = RunInPlace(*program_->shared_update(), replicas_[kFirst].context,
                                     update_->updated_variables, Owners(), std::move(arguments),
                                     OptionsFor(AllCores()), &outputs);
    FinishForAll(std::move(status), outputs);
  }

  void RunForEachReplica() {
    updated_.resize(replicas_.size());
    working_ = replicas_.size();
    for (StepRun run : replicas_.numbers()) {
      RunFor(run, ArgumentsFor(run), OptionsFor(replicas_[run].cores),
             [self = shared_from_this(), run](absl::Status status, Outputs outputs) {
               self->updated_[run] = std::move(outputs);
               {
                 absl::MutexLock lock(&self->mutex_);
                 self->status_.Update(status);
                 status = self->status_;
               }
               if (self->working_.fetch_sub(1) == 1) self->Finish(std::move(status));
             });
    }
  }

  // The update's arguments for one replica.
  Arguments ArgumentsFor(StepRun run) const {
    Arguments arguments = replicas_[run].arguments;
    arguments.resize(update_->num_arguments);
    for (size_t i = 0; i < combined_.size(); ++i) {
      if (!update_->combinations[i].by_update) {
        arguments.Add(combined_[i]);
        continue;
      }
      for (const UpdateReplica& each : replicas_) arguments.Add(each.outputs[OutputToCombine(i)]);
    }
    return arguments;
  }

  // What a profile shows of a run.
  RunOptions OptionsFor(std::vector<Core> served_cores) const {
    RunOptions options;
    options.served_cores = std::move(served_cores);
    if (!combined_until_.has_value()) return options;
    options.combines_from = combines_from_;
    options.combined_until = combined_until_;
    for (const Tensor& combined : combined_) options.combined_bytes += combined.TotalBytes();
    return options;
  }

  void RunFor(StepRun run, Arguments arguments, RunOptions options, Program::Done done) {
    options.on_one_thread = program_->shared_update()->typical_run() < kWorthAThread;
    program_->shared_update()->Start(replicas_[run].context, std::move(arguments),
                                     std::move(options), std::move(done));
  }

  // Finishes after the update has run once for all replicas.
  void FinishForAll(absl::Status status, const Outputs& outputs) {
    updated_ = ByNumber<StepRun, Outputs>(replicas_.size(), outputs);
    Finish(std::move(status));
  }

  // Returns all memory before calling `done`, which may start the next step, which may need it.
  void Finish(absl::Status status) {
    combined_.clear();
    for (UpdateReplica& replica : replicas_) {
      const auto combined = replica.outputs.begin() + update_->replica_outputs.size();
      program_->Recycle(
          {std::make_move_iterator(combined), std::make_move_iterator(replica.outputs.end())});
    }
    ByNumber<StepRun, Outputs> outputs(replicas_.size());
    if (status.ok()) {
      for (StepRun run : replicas_.numbers()) outputs[run] = OutputsOfStep(run);
    }
    done_(std::move(status), std::move(outputs));
  }

  // Takes the replica's own outputs, which are gone afterwards.
  Outputs OutputsOfStep(StepRun run) {
    Outputs outputs(update_->replica_outputs.size() + update_->update_outputs.size());
    for (OutputNumber output : update_->replica_outputs.numbers()) {
      outputs[update_->replica_outputs[output]] = std::move(replicas_[run].outputs[output]);
    }
    for (OutputNumber output : update_->update_outputs.numbers()) {
      outputs[update_->update_outputs[output]] = updated_[run][output];
    }
    return outputs;
  }

  ComputePool& pool_;
  ProfileRecorder* const recorder_;
  const std::function<void(std::function<void()>)> run_locking_;
  const std::shared_ptr<Program> program_;
  const SharedUpdate* const update_;
  ByNumber<StepRun, UpdateReplica> replicas_;
  const Done done_;

  // When the threads began and finished combining, if a profile is being taken.
  ProfileTime combines_from_, combined_until_;
  // Indexed by combination. Start writes it. Each chunk of elements is written by the thread that
  // took it.
  std::vector<Tensor> combined_;
  std::vector<Chunk> chunks_;
  // The next chunk to take.
  std::atomic<size_t> next_chunk_{0};
  // The number of threads, or runs of the update, that have not finished their stage.
  std::atomic<int> working_{0};
  // Outputs of the update. Each of its runs writes its own.
  ByNumber<StepRun, Outputs> updated_;
  absl::Mutex mutex_;
  // The first error of a stage.
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

bool HaveEqualBytes(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  return a.data() == b.data() || std::memcmp(a.data(), b.data(), a.TotalBytes()) == 0;
}

void StartSharedUpdate(const LaunchServices& services, std::shared_ptr<Program> program,
                       ByNumber<StepRun, UpdateReplica> replicas, UpdateRun::Done done) {
  std::make_shared<UpdateRun>(services, std::move(program), std::move(replicas), std::move(done))
      ->Start();
}

}  // namespace tf_tpu_ext
