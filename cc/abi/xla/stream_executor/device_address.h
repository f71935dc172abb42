// The wheel's own header; for 2.19 and 2.20, the header that has the class under another name.
#ifndef TF_TPU_EXT_CC_ABI_XLA_STREAM_EXECUTOR_DEVICE_ADDRESS_H_
#define TF_TPU_EXT_CC_ABI_XLA_STREAM_EXECUTOR_DEVICE_ADDRESS_H_

#if __has_include_next("xla/stream_executor/device_address.h")
#include_next "xla/stream_executor/device_address.h"
#else
#include "xla/stream_executor/device_memory.h"

namespace stream_executor {
using DeviceAddressBase = DeviceMemoryBase;
}  // namespace stream_executor
#endif

#endif  // TF_TPU_EXT_CC_ABI_XLA_STREAM_EXECUTOR_DEVICE_ADDRESS_H_
