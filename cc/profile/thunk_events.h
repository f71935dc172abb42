// What XLA reports about the ops that its threads ran.
#ifndef TF_TPU_EXT_CC_PROFILE_THUNK_EVENTS_H_
#define TF_TPU_EXT_CC_PROFILE_THUNK_EVENTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tsl/profiler/protobuf/xplane.pb.h"

namespace tf_tpu_ext {

inline constexpr int64_t kPicosPerNano = 1000;

// One op of one run.
struct ThunkEvent {
  int64_t run_id = 0;
  int64_t device = 0;
  std::string op;
  // Picoseconds since an origin.
  int64_t begin_ps = 0;
  int64_t end_ps = 0;
};

// The ops in the host's threads. XLA marks where an op begins, and also, if the op continues
// asynchronously, where it ends, with a second event: a collective ends on another thread. An op
// whose end was not recorded ends where its thread went on. Before TensorFlow 2.21, an op's run is
// that of the innermost RunScope around it, and an op that continues asynchronously ends where its
// thread went on. Ops that are in no run are left out.
//
// XLA's number of the program is not used: a restored program's ops have that of another process.
//
// `origin` is in nanoseconds on the profiler's clock, on which picoseconds since 1970 don't fit
// into 64 bits.
std::vector<ThunkEvent> ReadThunkEvents(const tensorflow::profiler::XSpace& space, int64_t origin);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROFILE_THUNK_EVENTS_H_
