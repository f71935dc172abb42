// Makes the objects of the process.
#ifndef TF_TPU_EXT_CC_RUNTIME_PROCESS_OBJECTS_H_
#define TF_TPU_EXT_CC_RUNTIME_PROCESS_OBJECTS_H_

#include <memory>

#include "absl/base/call_once.h"
#include "cc/base/compute_pool.h"
#include "cc/base/core_threads.h"
#include "cc/base/kernel_threads.h"
#include "cc/base/machine.h"
#include "cc/base/process.h"
#include "cc/base/wait_monitor.h"
#include "cc/check/findings.h"
#include "cc/embedding/current_embedding.h"
#include "cc/pods/endpoints.h"
#include "cc/pods/host_traffic.h"
#include "cc/profile/recorder.h"
#include "cc/runtime/collective_table.h"
#include "cc/runtime/core_order.h"
#include "cc/runtime/first_launches.h"
#include "cc/runtime/launch_table.h"
#include "cc/runtime/padding_stats.h"
#include "cc/runtime/pod_programs.h"
#include "cc/runtime/program_cache.h"
#include "cc/runtime/program_services.h"
#include "cc/runtime/step_transfers.h"
#include "cc/runtime/target_programs.h"
#include "cc/transfer/channels.h"
#include "cc/transfer/transfer_stats.h"
#include "tensorflow/core/platform/threadpool.h"

namespace xla::cpu {
class CpuCollectives;
}  // namespace xla::cpu

namespace tf_tpu_ext {

class YnnThreads;

// Owns the objects, and hands each to those that need it. Starts no thread.
class ProcessObjects {
 public:
  ProcessObjects();
  ~ProcessObjects();
  ProcessObjects(const ProcessObjects&) = delete;
  ProcessObjects& operator=(const ProcessObjects&) = delete;

  const Process& process() const { return process_; }

  // The threads of the cores. Made when they are first asked for, which must not be before the
  // number of cores is fixed.
  CoreThreads* core_threads();

 private:
  LaunchServices ServicesOfLaunches();
  ProgramServices ServicesOfPrograms();

  // Mostly in the order of the floors, lowest first: each uses only objects declared before it.
  Machine machine_;
  absl::once_flag made_core_threads_;
  std::unique_ptr<CoreThreads> core_threads_;
  ComputePool compute_pool_;
  KernelThreadPools kernel_threads_;
  CoreThreads host_threads_;
  WaitMonitor wait_monitor_;
  ProfileRecorder recorder_;
  TensorChannels channels_;
  TransferStats transfer_stats_;
  EmbeddingSlot embedding_;
  Findings findings_;
  StepTransfers transfers_;
  CollectiveTable collectives_;
  const std::unique_ptr<xla::cpu::CpuCollectives> xla_collectives_;
  CoreOrder core_order_;
  FirstLaunches first_launches_;
  Endpoints endpoints_;
  HostTraffic host_traffic_;
  // Made when the first update needs it.
  absl::once_flag made_locking_thread_;
  std::unique_ptr<tensorflow::thread::ThreadPool> locking_thread_;
  LaunchTable launches_;
  const std::unique_ptr<YnnThreads> ynn_threads_;
  PaddingStats padding_;
  const ProgramServices program_services_;
  ProgramCache programs_;
  PodPrograms pod_programs_;
  TargetPrograms target_programs_;
  const Process process_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_PROCESS_OBJECTS_H_
