// The threads that run compiled programs. They belong to no TensorFlow pool, there are as many as
// processors whatever the number of cores, and nothing that runs on them may block: collectives and
// host transfers complete asynchronously.
#ifndef TF_TPU_EXT_CC_BASE_COMPUTE_POOL_H_
#define TF_TPU_EXT_CC_BASE_COMPUTE_POOL_H_

#include <functional>

namespace Eigen {
struct ThreadPoolDevice;
}  // namespace Eigen

namespace tf_tpu_ext {

class ComputePool {
 public:
  static void Schedule(std::function<void()> work);
  static const Eigen::ThreadPoolDevice* EigenDevice();
  static int NumThreads();
  // Whether the caller is one of its threads.
  static bool IsCaller();

  // How many cores run programs now, those included that wait for others.
  static int NumRuns();
  static void AddRuns(int number);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_COMPUTE_POOL_H_
