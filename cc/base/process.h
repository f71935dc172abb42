// The objects that a process has one of.
#ifndef TF_TPU_EXT_CC_BASE_PROCESS_H_
#define TF_TPU_EXT_CC_BASE_PROCESS_H_

namespace tf_tpu_ext {

class CollectiveTable;
class ComputePool;
class CoreOrder;
class CoreThreads;
class Endpoints;
class KernelThreadPools;
class EmbeddingSlot;
class Findings;
class FirstLaunches;
class HostTraffic;
class LaunchTable;
class Machine;
class PaddingStats;
class PodPrograms;
class ProfileRecorder;
class ProgramCache;
struct ProgramServices;
class StepTransfers;
class TargetPrograms;
class TensorChannels;
class TransferStats;
class WaitMonitor;

// They hold all state that steps and programs of the process share (docs/architecture.md,
// "Process-wide state", lists what is kept elsewhere, and why). When the library is loaded,
// plugin.cc makes them, see cc/runtime/process_objects.h; they live until the process ends, since
// threads use them until then. All are thread-safe.
//
// What TensorFlow or XLA call - kernels, passes, custom calls - asks Get() for what it needs. The
// objects themselves, and whatever a test wants to run on its own, get theirs by their
// constructors. Of the classes above its floor this file knows the names only: a room can use what
// stands below it.
struct Process {
  // base: settings, threads, waits.
  Machine* machine = nullptr;
  ComputePool* compute_pool = nullptr;
  KernelThreadPools* kernel_threads = nullptr;
  CoreThreads* host_threads = nullptr;
  WaitMonitor* wait_monitor = nullptr;
  // profile
  ProfileRecorder* recorder = nullptr;
  // transfer
  TensorChannels* channels = nullptr;
  TransferStats* transfer_stats = nullptr;
  // check
  Findings* findings = nullptr;
  // embedding
  EmbeddingSlot* embedding = nullptr;
  // runtime
  CollectiveTable* collectives = nullptr;
  CoreOrder* core_order = nullptr;
  Endpoints* endpoints = nullptr;
  FirstLaunches* first_launches = nullptr;
  HostTraffic* host_traffic = nullptr;
  StepTransfers* transfers = nullptr;
  LaunchTable* launches = nullptr;
  PaddingStats* padding = nullptr;
  const ProgramServices* program_services = nullptr;
  ProgramCache* programs = nullptr;
  PodPrograms* pod_programs = nullptr;
  TargetPrograms* target_programs = nullptr;

  static const Process& Get();
  // `process` must live on; it takes the place of the one before.
  static void Install(const Process* process);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_PROCESS_H_
