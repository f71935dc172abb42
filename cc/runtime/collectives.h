// XLA:CPU's collectives on top of CollectiveTable: asynchronous, cancellable, and without the stock
// implementation's deadline, which aborts the process if a replica does not arrive.
#ifndef TF_TPU_EXT_CC_RUNTIME_COLLECTIVES_H_
#define TF_TPU_EXT_CC_RUNTIME_COLLECTIVES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "cc/program/shared_update.h"
#include "cc/runtime/collective_table.h"

namespace xla::cpu {
class CpuCollectives;
}  // namespace xla::cpu

namespace tf_tpu_ext {

class ComputePool;
class ProfileRecorder;

// Creates collectives whose participants meet in the table. All arguments must outlive them.
// Programs that have to wait for others, as in TensorFlow 2.19, wait on the pool's threads. The
// recorder, which may be null, records the waits while a profile is being taken.
std::unique_ptr<xla::cpu::CpuCollectives> MakeCollectives(CollectiveTable* table,
                                                          ComputePool* compute_pool,
                                                          ProfileRecorder* recorder);

// Combines elements [offset, offset + count) of all values as a collective would, and writes them
// to the same position in `result`, which may be one of the values.
absl::Status CombineBuffers(const Combination& combination, const std::vector<const void*>& values,
                            int64_t offset, int64_t count, void* result);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_RUNTIME_COLLECTIVES_H_
