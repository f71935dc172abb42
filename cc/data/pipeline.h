// A pipeline that runs in processes of another environment: tf_tpu_ext.io.
//
// Python starts and watches the processes. Iterations request elements from them, and wait for
// them, without Python.
#ifndef TF_TPU_EXT_CC_DATA_PIPELINE_H_
#define TF_TPU_EXT_CC_DATA_PIPELINE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cc/data/element_slots.h"
#include "cc/data/pipeline_channel.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_tpu_ext {

class PipelineIteration;

// Thread-safe.
class Pipeline : public std::enable_shared_from_this<Pipeline> {
 public:
  // Pipelines are identified by numbers within this process.
  static int64_t Add();
  static void Remove(int64_t number);
  // Fails if there is no pipeline with that number.
  static absl::StatusOr<std::shared_ptr<Pipeline>> Find(int64_t number);
  // Ends all iterations of all pipelines because of Ctrl-C.
  static void InterruptAll();

  // Adds a process, which takes requests at the other end of the socket.
  void AddProcess(OwnedFile requests);
  // Ends all iterations with an error, including those that begin later. The first error counts.
  void Fail(absl::string_view error);
  // Prevents further iterations; those that have begun continue.
  void Close();
  int iterations();
  // How long the longest-waiting iteration has waited.
  absl::Duration LongestWait();

  absl::StatusOr<std::unique_ptr<PipelineIteration>> Iterate();

 private:
  friend class PipelineIteration;

  void Interrupt();
  void Forget(PipelineIteration* iteration);
  absl::Status error();

  absl::Mutex mutex_;
  std::vector<OwnedFile> processes_ ABSL_GUARDED_BY(mutex_);
  std::string error_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<PipelineIteration*> iterations_ ABSL_GUARDED_BY(mutex_);
  int64_t iterated_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

// Thread-safe.
class PipelineIteration {
 public:
  ~PipelineIteration();
  PipelineIteration(const PipelineIteration&) = delete;

  // Waits for the next element; sets `end` if there are no more. After an error, every call returns
  // it again.
  absl::Status Next(std::vector<tensorflow::Tensor>* element, bool* end);

  // Ends the iteration, and any wait for an element, with an error.
  void Cancel(const absl::Status& why);

 private:
  friend class Pipeline;

  PipelineIteration(std::shared_ptr<Pipeline> pipeline, OwnedFile wake)
      : pipeline_(std::move(pipeline)), wake_(std::move(wake)) {}

  void Wake();
  // Why there are no more elements; OK if there may be more.
  absl::Status Ending();
  // Checks each process's channel once; returns whether there was an element.
  absl::StatusOr<bool> TryNext(std::vector<tensorflow::Tensor>* element, bool* end)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(next_mutex_);
  void Wait() ABSL_EXCLUSIVE_LOCKS_REQUIRED(next_mutex_);

  const std::shared_ptr<Pipeline> pipeline_;
  // Becomes readable when the iteration ends early.
  const OwnedFile wake_;
  // In nanoseconds since the epoch; 0 if nothing waits.
  std::atomic<int64_t> waits_since_{0};

  // One caller at a time gets elements; held while it waits.
  absl::Mutex next_mutex_;
  std::vector<std::unique_ptr<PipelineChannel>> channels_ ABSL_GUARDED_BY(next_mutex_);
  size_t turn_ ABSL_GUARDED_BY(next_mutex_) = 0;
  // Once a process is gone: how long to wait for the pipeline's error.
  absl::Time explained_by_ ABSL_GUARDED_BY(next_mutex_) = absl::InfiniteFuture();

  // Never held while anything waits.
  absl::Mutex mutex_;
  absl::Status ending_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_DATA_PIPELINE_H_
