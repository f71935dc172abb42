// What the processors of this machine can do at most.
#ifndef TF_TPU_EXT_CC_PROFILE_MACHINE_RATES_H_
#define TF_TPU_EXT_CC_PROFILE_MACHINE_RATES_H_

namespace tf_tpu_ext {

struct MachineRates {
  // Of float32.
  double flops_per_second = 0;
  // Read and written.
  double bytes_per_second = 0;

  // The share of one of several cores that all compute.
  MachineRates OfCore(int cores) const;
};

// Measured on all processors at once, which takes a tenth of a second: multiply-adds in the widest
// registers, and copies of memory that no cache holds.
MachineRates MeasureMachine();

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROFILE_MACHINE_RATES_H_
