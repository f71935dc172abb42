// The planes /device:TPU:i of a profile, in the form that XProf expects from a TPU.
#ifndef TF_TPU_EXT_CC_PROFILE_CORE_PLANES_H_
#define TF_TPU_EXT_CC_PROFILE_CORE_PLANES_H_

#include <cstdint>
#include <vector>

#include "cc/profile/machine_rates.h"
#include "cc/profile/recorder.h"
#include "cc/profile/thunk_events.h"
#include "tsl/profiler/protobuf/xplane.pb.h"

namespace tf_tpu_ext {

// How each plane describes the machine.
struct MachineDescription {
  int cores = 1;
  int cores_per_chip = 1;
  MachineRates rates;
};

// Adds a plane for each core that ran a program, with these lines:
//   Steps            one event for each launch, lasting until the next one begins
//   XLA Modules      the runs of programs
//   XLA Ops          their ops
//   Waits            what the core has waited for
// A run that serves several cores is on the planes of all of them. From what the ops carry, XProf
// makes the lines "Framework Ops", "Framework Name Scope" and "Source code".
//
// The times of `ops` are relative to `origin`, in nanoseconds.
void AddCorePlanes(const Recording& recording, const std::vector<ThunkEvent>& ops, int64_t origin,
                   const MachineDescription& machine, tensorflow::profiler::XSpace* space);

// Returns when the first run or wait of the recording began.
int64_t FirstBegin(const Recording& recording);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROFILE_CORE_PLANES_H_
