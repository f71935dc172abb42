// The peak rates of this machine's processors.
#ifndef TF_TPU_EXT_CC_PROFILE_MACHINE_RATES_H_
#define TF_TPU_EXT_CC_PROFILE_MACHINE_RATES_H_

namespace tf_tpu_ext {

struct MachineRates {
  // Of float32 values.
  double flops_per_second = 0;
  // Bytes read and written.
  double bytes_per_second = 0;

  // One core's share if `cores` cores all compute.
  MachineRates OfCore(int cores) const;
};

// Measured on all processors at once, which takes a tenth of a second: multiply-adds in the widest
// registers, and copies of memory too large for any cache.
MachineRates MeasureMachine();

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROFILE_MACHINE_RATES_H_
