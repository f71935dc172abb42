#ifndef TF_TPU_EXT_CC_RUNTIME_PROGRAM_SERVICES_H_
#define TF_TPU_EXT_CC_RUNTIME_PROGRAM_SERVICES_H_

namespace xla::cpu {
class CpuCollectives;
}  // namespace xla::cpu

namespace tf_tpu_ext {

class ComputePool;
class CoreThreads;
class KernelThreadPools;
class PaddingStats;
class ProfileRecorder;
class TransferStats;
class YnnThreads;

// What programs need of the process. They are handed in, so that a test runs programs without the
// process's own. All must outlive the programs, and are thread-safe.
struct ProgramServices {
  // Where programs run.
  ComputePool* compute_pool = nullptr;
  // The same threads for XLA's matrix products.
  YnnThreads* ynn_threads = nullptr;
  // What programs compute with that keep to one thread.
  KernelThreadPools* kernel_threads = nullptr;
  // Where their replicas meet.
  xla::cpu::CpuCollectives* collectives = nullptr;
  // Where functions of the host run that programs call, and what is counted of them.
  CoreThreads* host_threads = nullptr;
  TransferStats* transfer_stats = nullptr;
  // Counts the padding of their arguments.
  PaddingStats* padding = nullptr;
  // Learns of their runs while a profile is taken; may be null.
  ProfileRecorder* recorder = nullptr;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_PROGRAM_SERVICES_H_
