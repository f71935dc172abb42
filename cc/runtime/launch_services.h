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

// What launches need from the process. Passed in, so that tests can run launches without a session
// or the process's own services. All must be thread-safe and outlive the launches.
struct LaunchServices {
  // Where the replicas of a run meet.
  CollectiveTable* collectives = nullptr;
  // Reports launches that wait too long for cores, or whose cores wait too long for each other.
  WaitMonitor* wait_monitor = nullptr;
  // Decides which of the programs that update variables has which cores.
  CoreOrder* core_order = nullptr;
  // Where programs run.
  ComputePool* compute_pool = nullptr;
  // Collects what checks of steps find. Null if no program is watched.
  Findings* findings = nullptr;
  // Records when the first launches ran. May be null.
  FirstLaunches* first_launches = nullptr;
  // Where host functions run that programs call.
  CoreThreads* host_threads = nullptr;
  // Tells transfers when a launch ends.
  LaunchTransfers* transfers = nullptr;
  // Notices when a host of a pod is lost. Null if there are no other hosts.
  Endpoints* endpoints = nullptr;
  // Records what launches wait for while a profile is being taken. May be null.
  ProfileRecorder* recorder = nullptr;
  // Runs long work, such as compiling, on its own thread.
  std::function<void(std::function<void()>)> run_long;
  // Runs updates that hold the locks of variables one at a time, on a thread that may wait for the
  // compute pool.
  std::function<void(std::function<void()>)> run_locking;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_LAUNCH_SERVICES_H_
