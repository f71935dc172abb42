// Ends tf.data's autotuning loop the moment its iterator is deleted.
//
// TensorFlow wakes the loop when the iterator goes, but the loop may look before the cancellation
// is visible and then sleeps out its pause, up to a minute, while the deletion waits for it. The
// loop here tunes by the same Model, at the same pace, and cannot miss the cancellation.
#include <cstdint>
#include <cstring>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/const_init.h"
#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cc/data/imported_function.h"
#include "cc/data/paced_loop.h"
#include "tensorflow/core/framework/model.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::data::model::AutotuneAlgorithm;
using tensorflow::data::model::Model;
using tensorflow::data::model::Node;
using tensorflow::data::model::RamBudgetManager;

constexpr absl::Duration kFirstPause = absl::Milliseconds(20);
constexpr absl::Duration kLongestPause = absl::Minutes(1);

// The compiler checks here that RunAutotuner stands in for the right thing: a member function takes
// its object as the first argument, as RunAutotuner does.
constexpr absl::Status (Model::*kStockLoop)(AutotuneAlgorithm, std::function<int64_t()>, double,
                                            std::optional<int64_t>, RamBudgetManager&,
                                            tsl::CancellationManager*) = &Model::OptimizeLoop;

void FlushMetrics(const Model& model) {
  std::list<std::shared_ptr<Node>> nodes;
  if (std::shared_ptr<Node> output = model.output(); output != nullptr) nodes.push_back(output);
  for (; !nodes.empty(); nodes.pop_front()) {
    nodes.front()->FlushMetrics();
    nodes.splice(nodes.end(), nodes.front()->inputs());
  }
}

absl::Status RunAutotuner(Model* model, AutotuneAlgorithm algorithm,
                          std::function<int64_t()> cpu_budget, double ram_budget_share,
                          std::optional<int64_t> fixed_ram_budget, RamBudgetManager& ram_budget,
                          tsl::CancellationManager* cancellation) {
  RunPaced(*cancellation, kFirstPause, kLongestPause, [&] {
    // The other algorithms want no time of the model's consumer.
    const double target_time_nsec =
        algorithm == AutotuneAlgorithm::STAGE_BASED ? model->ComputeTargetTimeNsec() : 0.0;
    model->Optimize(algorithm, cpu_budget, ram_budget_share, fixed_ram_budget, target_time_nsec,
                    ram_budget, cancellation);
    FlushMetrics(*model);
  });
  return absl::OkStatus();
}

// In the Itanium C++ ABI the first word of a pointer to a non-virtual member is its address.
void* StockLoopAddress() {
  void* address = nullptr;
  std::memcpy(static_cast<void*>(&address), &kStockLoop, sizeof(address));
  return address;
}

absl::Mutex mutex(absl::kConstInit);

std::optional<ImportedFunction>& Redirected() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
  static auto* redirected = new std::optional<ImportedFunction>;
  return *redirected;
}

absl::Status Redirect() {
  absl::MutexLock lock(&mutex);
  if (Redirected().has_value()) return absl::OkStatus();
  absl::StatusOr<ImportedFunction> result =
      ImportedFunction::Redirect(StockLoopAddress(), reinterpret_cast<void*>(&RunAutotuner));
  if (!result.ok()) return result.status();
  Redirected() = *std::move(result);
  return absl::OkStatus();
}

absl::Status Restore() {
  absl::MutexLock lock(&mutex);
  if (!Redirected().has_value()) return absl::OkStatus();
  if (absl::Status restored = Redirected()->Restore(); !restored.ok()) return restored;
  Redirected().reset();
  return absl::OkStatus();
}

// The text of an error, for ctypes: null where there is none. Lives until the thread asks again.
const char* Message(const absl::Status& status) {
  if (status.ok()) return nullptr;
  static thread_local std::string message;
  message = std::string(status.message());
  return message.c_str();
}

}  // namespace
}  // namespace tf_tpu_ext

extern "C" {

// Lets every iterator of the process that is made from now on tune by the loop above. Returns null,
// or why it could not be done.
const char* TfTpuExt_ReplaceAutotuneLoop() { return tf_tpu_ext::Message(tf_tpu_ext::Redirect()); }

// Gives new iterators TensorFlow's loop again. Returns null, or why it could not be done.
const char* TfTpuExt_RestoreAutotuneLoop() { return tf_tpu_ext::Message(tf_tpu_ext::Restore()); }

}  // extern "C"
