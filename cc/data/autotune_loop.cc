#include "cc/data/autotune_loop.h"

#include <cstdint>
#include <cstring>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/const_init.h"
#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cc/data/imported_function.h"
#include "cc/data/paced_loop.h"
#include "tensorflow/core/framework/model.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::data::model::AutotuneAlgorithm;
using tensorflow::data::model::Model;
using tensorflow::data::model::Node;
using tensorflow::data::model::RamBudgetManager;

constexpr absl::Duration kFirstPause = absl::Milliseconds(20);
constexpr absl::Duration kLongestPause = absl::Minutes(1);

// Makes the compiler check the signature of what RunAutotuner replaces: a member function takes its
// object as the first argument, as RunAutotuner does.
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
    // The other algorithms don't use a target time.
    const double target_time_nsec =
        algorithm == AutotuneAlgorithm::STAGE_BASED ? model->ComputeTargetTimeNsec() : 0.0;
    model->Optimize(algorithm, cpu_budget, ram_budget_share, fixed_ram_budget, target_time_nsec,
                    ram_budget, cancellation);
    FlushMetrics(*model);
  });
  return absl::OkStatus();
}

// In the Itanium C++ ABI, the first word of a pointer to a non-virtual member function is its
// address.
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

}  // namespace

absl::Status ReplaceAutotuneLoop() {
  absl::MutexLock lock(&mutex);
  if (Redirected().has_value()) return absl::OkStatus();
  TF_ASSIGN_OR_RETURN(
      Redirected(),
      ImportedFunction::Redirect(StockLoopAddress(), reinterpret_cast<void*>(&RunAutotuner)));
  return absl::OkStatus();
}

absl::Status RestoreAutotuneLoop() {
  absl::MutexLock lock(&mutex);
  if (!Redirected().has_value()) return absl::OkStatus();
  TF_RETURN_IF_ERROR(Redirected()->Restore());
  Redirected().reset();
  return absl::OkStatus();
}

}  // namespace tf_tpu_ext
