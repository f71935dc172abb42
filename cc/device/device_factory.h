#ifndef TF_TPU_EXT_CC_DEVICE_DEVICE_FACTORY_H_
#define TF_TPU_EXT_CC_DEVICE_DEVICE_FACTORY_H_

#include <functional>

namespace tf_tpu_ext {

class CoreThreads;
class Machine;

// Registers the factories of the TPU and TPU_SYSTEM devices. They make as many cores as the machine
// has at the time when TensorFlow creates its devices; only then is `core_threads` asked for the
// threads that they share. Both must live on.
void RegisterDeviceFactories(Machine* machine, const std::function<CoreThreads*()>& core_threads);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_DEVICE_DEVICE_FACTORY_H_
