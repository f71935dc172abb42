#include "cc/base/process.h"

#include <atomic>

#include "absl/log/check.h"

namespace tf_tpu_ext {
namespace {

std::atomic<const Process*> installed{nullptr};

}  // namespace

const Process& Process::Get() {
  const Process* process = installed.load(std::memory_order_acquire);
  CHECK(process != nullptr) << "The objects of the process are used before they were made.";
  return *process;
}

void Process::Install(const Process* process) {
  installed.store(process, std::memory_order_release);
}

}  // namespace tf_tpu_ext
