// Who kept whom waiting.
#ifndef TF_TPU_EXT_CC_PROFILE_MEETINGS_H_
#define TF_TPU_EXT_CC_PROFILE_MEETINGS_H_

#include <vector>

#include "cc/profile/recorder.h"

namespace tf_tpu_ext {

// The waits with those of collectives completed: the cores of a meeting wait for the one that comes
// last, and until then; what follows is the operation itself. The last one has not waited. A core
// comes to each of the meetings of one name in the same order as the others.
std::vector<RecordedWait> FindWhoWasLast(std::vector<RecordedWait> waits);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROFILE_MEETINGS_H_
