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

// What programs need from the process. Passed in, so that tests can run programs without the
// process's own services. All must be thread-safe and outlive the programs.
struct ProgramServices {
  // Where programs run.
  ComputePool* compute_pool = nullptr;
  // The same threads for XLA's matrix products.
  YnnThreads* ynn_threads = nullptr;
  // What programs compute with that stay on one thread.
  KernelThreadPools* kernel_threads = nullptr;
  // Where their replicas meet.
  xla::cpu::CpuCollectives* collectives = nullptr;
  // Where host functions run that programs call, and the statistics of these calls.
  CoreThreads* host_threads = nullptr;
  TransferStats* transfer_stats = nullptr;
  // Counts the padding in arguments.
  PaddingStats* padding = nullptr;
  // Records runs while a profile is being taken. May be null.
  ProfileRecorder* recorder = nullptr;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_PROGRAM_SERVICES_H_
