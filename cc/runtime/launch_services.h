#ifndef TF_TPU_EXT_CC_RUNTIME_LAUNCH_SERVICES_H_
#define TF_TPU_EXT_CC_RUNTIME_LAUNCH_SERVICES_H_

#include <functional>

namespace tf_tpu_ext {

class CollectiveTable;
class ComputePool;
class CoreOrder;
class CoreThreads;
class Endpoints;
class Findings;
class FirstLaunches;
class LaunchTransfers;
class ProfileRecorder;
class WaitMonitor;

// What launches need of the process. They are handed in, so that a test runs launches without a
// session and without the process's own. All must outlive the launches, and are thread-safe.
struct LaunchServices {
  // Where the replicas of a run meet.
  CollectiveTable* collectives = nullptr;
  // Reports launches that wait too long for cores, or whose cores wait too long for each other.
  WaitMonitor* wait_monitor = nullptr;
  // Which of the programs that update variables has which cores.
  CoreOrder* core_order = nullptr;
  // Where programs run.
  ComputePool* compute_pool = nullptr;
  // What checks of steps find. Null where no program is watched.
  Findings* findings = nullptr;
  // When the first launches ran. May be null.
  FirstLaunches* first_launches = nullptr;
  // Where functions of the host run that programs call.
  CoreThreads* host_threads = nullptr;
  // What the end of a launch means for its transfers.
  LaunchTransfers* transfers = nullptr;
  // Notices hosts of a pod that are lost. Null where there are no other hosts.
  Endpoints* endpoints = nullptr;
  // Learns what launches wait for while a profile is taken; may be null.
  ProfileRecorder* recorder = nullptr;
  // Runs work that takes long, as the compiler does, on a thread of its own.
  std::function<void(std::function<void()>)> run_long;
  // Runs updates that hold the locks of variables, one after the other, on a thread that may wait
  // for the compute pool.
  std::function<void(std::function<void()>)> run_locking;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_LAUNCH_SERVICES_H_
