// The process objects that tests of custom calls and host functions need.
#ifndef TF_TPU_EXT_CC_TRANSFER_PROCESS_TESTING_H_
#define TF_TPU_EXT_CC_TRANSFER_PROCESS_TESTING_H_

#include "absl/time/time.h"
#include "cc/base/compute_pool.h"
#include "cc/base/core_threads.h"
#include "cc/base/machine.h"
#include "cc/base/process.h"
#include "cc/base/wait_monitor.h"
#include "cc/transfer/channels.h"
#include "cc/transfer/transfer_stats.h"

namespace tf_tpu_ext {

// Installs the objects for the life of the test program: its static objects are never destroyed.
class TestProcess {
 public:
  TestProcess() {
    process.machine = &machine;
    process.compute_pool = &compute_pool;
    process.host_threads = &host_threads;
    process.wait_monitor = &wait_monitor;
    process.channels = &channels;
    process.transfer_stats = &transfer_stats;
    Process::Install(&process);
  }

  // The only instance in this test program.
  static TestProcess& Get() {
    static auto* const made = new TestProcess;
    return *made;
  }

  Machine machine;
  ComputePool compute_pool;
  CoreThreads host_threads{CoreThreads::Options{/*usual_threads=*/2, /*max_threads=*/8}};
  WaitMonitor wait_monitor{[] { return absl::Minutes(30); }};
  TensorChannels channels;
  TransferStats transfer_stats;
  // A test may add objects from its own room.
  Process process;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_TRANSFER_PROCESS_TESTING_H_
