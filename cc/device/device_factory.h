#ifndef TF_TPU_EXT_CC_DEVICE_DEVICE_FACTORY_H_
#define TF_TPU_EXT_CC_DEVICE_DEVICE_FACTORY_H_

namespace tf_tpu_ext {

// Registers the factories of the TPU and TPU_SYSTEM devices. They make as many cores as
// GetMachineOptions() asks for at the time when TensorFlow creates its devices.
void RegisterDeviceFactories();

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_DEVICE_DEVICE_FACTORY_H_
