#include "cc/runtime/process_objects.h"

#include <functional>
#include <utility>

#include "cc/base/float_mode.h"
#include "cc/runtime/collectives.h"
#include "cc/runtime/ynn_threads.h"
#include "tensorflow/core/platform/cpu_info.h"
#include "tensorflow/core/platform/env.h"
#include "xla/backends/cpu/collectives/cpu_collectives.h"

namespace tf_tpu_ext {
namespace {

// This many iterators of one core may be destroyed at once while the core's other ops continue.
constexpr int kMaxThreadsPerCore = 4;

CoreThreads::Options HostThreadOptions() {
  CoreThreads::Options options;
  options.usual_threads = tensorflow::port::MaxParallelism();
  // Host functions may block and wait for each other, so this allows as many threads as may be
  // needed at once: more than the largest machine has cores, each with some blocked ops.
  options.max_threads = 16384;
  return options;
}

}  // namespace

ProcessObjects::ProcessObjects()
    : kernel_threads_(&compute_pool_),
      host_threads_(HostThreadOptions()),
      wait_monitor_(
          [this] { return machine_.options().wait_limit; },
          [this](std::function<void()> work) { host_threads_.Schedule(std::move(work)); }),
      embedding_(&compute_pool_),
      transfers_(&machine_, &channels_, &embedding_),
      xla_collectives_(MakeCollectives(&collectives_, &compute_pool_, &recorder_)),
      endpoints_([this] { return machine_.options().host_limit; }),
      launches_(ServicesOfLaunches()),
      ynn_threads_(std::make_unique<YnnThreads>(&compute_pool_)),
      program_services_(ServicesOfPrograms()),
      programs_([this] { return machine_.options().program_limits; }),
      process_([this] {
        Process process;
        process.machine = &machine_;
        process.compute_pool = &compute_pool_;
        process.kernel_threads = &kernel_threads_;
        process.host_threads = &host_threads_;
        process.wait_monitor = &wait_monitor_;
        process.recorder = &recorder_;
        process.channels = &channels_;
        process.transfer_stats = &transfer_stats_;
        process.embedding = &embedding_;
        process.collectives = &collectives_;
        process.core_order = &core_order_;
        process.findings = &findings_;
        process.first_launches = &first_launches_;
        process.endpoints = &endpoints_;
        process.host_traffic = &host_traffic_;
        process.transfers = &transfers_;
        process.launches = &launches_;
        process.padding = &padding_;
        process.program_services = &program_services_;
        process.programs = &programs_;
        process.pod_programs = &pod_programs_;
        process.target_programs = &target_programs_;
        return process;
      }()) {}

ProcessObjects::~ProcessObjects() = default;

CoreThreads* ProcessObjects::core_threads() {
  absl::call_once(made_core_threads_, [this] {
    CoreThreads::Options options;
    options.usual_threads = tensorflow::port::MaxParallelism();
    options.max_threads = options.usual_threads + kMaxThreadsPerCore * machine_.options().cores;
    core_threads_ = std::make_unique<CoreThreads>(options);
  });
  return core_threads_.get();
}

ProgramServices ProcessObjects::ServicesOfPrograms() {
  ProgramServices services;
  services.compute_pool = &compute_pool_;
  services.ynn_threads = ynn_threads_.get();
  services.kernel_threads = &kernel_threads_;
  services.collectives = xla_collectives_.get();
  services.host_threads = &host_threads_;
  services.transfer_stats = &transfer_stats_;
  services.padding = &padding_;
  services.recorder = &recorder_;
  return services;
}

LaunchServices ProcessObjects::ServicesOfLaunches() {
  LaunchServices services;
  services.collectives = &collectives_;
  services.wait_monitor = &wait_monitor_;
  services.core_order = &core_order_;
  services.findings = &findings_;
  services.first_launches = &first_launches_;
  services.compute_pool = &compute_pool_;
  services.host_threads = &host_threads_;
  services.transfers = &transfers_;
  services.endpoints = &endpoints_;
  services.recorder = &recorder_;
  services.run_long = [](std::function<void()> work) {
    tensorflow::Env::Default()->SchedClosure([work = std::move(work)] {
      const TensorFlowFloatMode float_mode;
      work();
    });
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
