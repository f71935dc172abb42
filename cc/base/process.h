// The objects that exist once per process.
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

// These objects hold all state that steps and programs of the process share (docs/architecture.md,
// "Process-wide state", lists what is kept elsewhere, and why). When the library is loaded,
// plugin.cc makes them (see cc/runtime/process_objects.h); they live until the process ends, since
// threads use them until then. All are thread-safe.
//
// What TensorFlow or XLA calls (kernels, passes, custom calls) asks Get() for what it needs. The
// objects themselves, and whatever a test wants to run on its own, receive what they use through
// their constructors. This file is below most of these classes, so it knows only their names; a
// room can use the objects of its own floor and of those below.
struct Process {
  // base: settings, threads, waits.
  Machine* machine = nullptr;
  ComputePool* compute_pool = nullptr;
  KernelThreadPools* kernel_threads = nullptr;
  CoreThreads* host_threads = nullptr;
  WaitMonitor* wait_monitor = nullptr;
  // pods
  Endpoints* endpoints = nullptr;
  HostTraffic* host_traffic = nullptr;
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
  FirstLaunches* first_launches = nullptr;
  StepTransfers* transfers = nullptr;
  LaunchTable* launches = nullptr;
  PaddingStats* padding = nullptr;
  const ProgramServices* program_services = nullptr;
  ProgramCache* programs = nullptr;
  PodPrograms* pod_programs = nullptr;
  TargetPrograms* target_programs = nullptr;

  static const Process& Get();
  // Replaces the one installed before. `process` must stay alive.
  static void Install(const Process* process);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_PROCESS_H_
