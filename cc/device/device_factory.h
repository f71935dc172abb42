#ifndef TF_TPU_EXT_CC_DEVICE_DEVICE_FACTORY_H_
#define TF_TPU_EXT_CC_DEVICE_DEVICE_FACTORY_H_

#include <functional>

namespace tf_tpu_ext {

class CoreThreads;
class Machine;

// Registers the factories of the TPU and TPU_SYSTEM devices. They make as many cores as the machine
// has when TensorFlow creates its devices; only then do they call `core_threads` for the threads
// that the cores share. The machine and the threads must stay alive.
void RegisterDeviceFactories(Machine* machine, const std::function<CoreThreads*()>& core_threads);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_DEVICE_DEVICE_FACTORY_H_
