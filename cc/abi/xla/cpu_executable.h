// What differs between versions in a program that XLA has compiled for the CPU: its constants and
// its machine code.
#ifndef TF_TPU_EXT_CC_ABI_XLA_CPU_EXECUTABLE_H_
#define TF_TPU_EXT_CC_ABI_XLA_CPU_EXECUTABLE_H_

#include <cstdint>

#include "cc/abi/xla/minor.h"
#include "xla/service/cpu/cpu_executable.h"
#include "xla/stream_executor/device_address.h"

namespace tf_tpu_ext {

#if TF_TPU_EXT_TENSORFLOW_MINOR >= 20
using ConstantAllocation = xla::cpu::ConstantAllocation;
#else
using ConstantAllocation = xla::cpu::CpuExecutable::ConstantAllocation;
#endif

inline stream_executor::DeviceAddressBase AddressOf(const ConstantAllocation& constant) {
#if TF_TPU_EXT_TENSORFLOW_MINOR >= 21
  return constant.AsDeviceAddress();
#else
  return constant.AsDeviceMemoryBase();
#endif
}

inline int64_t BytesOfCode(const xla::cpu::CpuExecutable& executable) {
  int64_t bytes = 0;
  for (const auto& file : executable.obj_files()) {
#if TF_TPU_EXT_TENSORFLOW_MINOR >= 20
    bytes += file.contents().size();
#else
    bytes += file.size();
#endif
  }
  return bytes;
}

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_ABI_XLA_CPU_EXECUTABLE_H_
