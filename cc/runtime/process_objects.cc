#include "cc/runtime/process_objects.h"

#include <functional>
#include <utility>

#include "cc/base/machine.h"
#include "cc/runtime/collectives.h"
#include "tensorflow/core/platform/cpu_info.h"
#include "tensorflow/core/platform/env.h"

namespace tf_tpu_ext {
namespace {

CoreThreads::Options HostThreadOptions() {
  CoreThreads::Options options;
  options.usual_threads = tensorflow::port::MaxParallelism();
  // Functions of the host may block, and wait for each other: as many threads as are needed at
  // once. More than the largest machine has cores, each with some blocked ops.
  options.max_threads = 16384;
  return options;
}

}  // namespace

ProcessObjects::ProcessObjects()
    : kernel_threads_(&compute_pool_),
      host_threads_(HostThreadOptions()),
      wait_monitor_([] { return GetMachineOptions().wait_limit; }),
      transfers_(&channels_),
      xla_collectives_(MakeCollectives(&collectives_)),
      launches_(Services()),
      process_([this] {
        Process process;
        process.compute_pool = &compute_pool_;
        process.kernel_threads = &kernel_threads_;
        process.host_threads = &host_threads_;
        process.wait_monitor = &wait_monitor_;
        process.channels = &channels_;
        process.collectives = &collectives_;
        process.xla_collectives = xla_collectives_.get();
        process.transfers = &transfers_;
        process.launches = &launches_;
        process.programs = &programs_;
        return process;
      }()) {}

LaunchServices ProcessObjects::Services() {
  LaunchServices services;
  services.collectives = &collectives_;
  services.wait_monitor = &wait_monitor_;
  services.core_order = &core_order_;
  services.compute_pool = &compute_pool_;
  services.host_threads = &host_threads_;
  services.transfers = &transfers_;
  services.run_long = [](std::function<void()> work) {
    tensorflow::Env::Default()->SchedClosure(std::move(work));
  };
  services.run_locking = [this](std::function<void()> work) {
    absl::call_once(made_locking_thread_, [this] {
      locking_thread_ = std::make_unique<tensorflow::thread::ThreadPool>(
          tensorflow::Env::Default(), "tpu_update", /*num_threads=*/1);
    });
    locking_thread_->Schedule(std::move(work));
  };
  return services;
}

}  // namespace tf_tpu_ext
