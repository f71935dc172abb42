// Which core kept which others waiting.
#ifndef TF_TPU_EXT_CC_PROFILE_MEETINGS_H_
#define TF_TPU_EXT_CC_PROFILE_MEETINGS_H_

#include <vector>

#include "cc/profile/recorder.h"

namespace tf_tpu_ext {

// Returns the waits, with those in collectives completed: the cores of a meeting wait for the last
// one to come, and until it comes; what follows is the operation itself. The last one has not
// waited. All cores come to the meetings with one name in the same order.
std::vector<RecordedWait> FindWhoWasLast(std::vector<RecordedWait> waits);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROFILE_MEETINGS_H_
