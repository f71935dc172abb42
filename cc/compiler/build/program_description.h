// What is known about a program before it is compiled.
#ifndef TF_TPU_EXT_CC_COMPILER_BUILD_PROGRAM_DESCRIPTION_H_
#define TF_TPU_EXT_CC_COMPILER_BUILD_PROGRAM_DESCRIPTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "cc/base/core_numbers.h"
#include "cc/base/number.h"
#include "cc/base/pod_shape.h"
#include "cc/compiler/lower/lower_module.h"
#include "cc/program/compiled_program.h"
#include "tensorflow/core/protobuf/tpu/compile_metadata.pb.h"
#include "xla/service/computation_placer.h"

namespace tf_tpu_ext {

// The core in the pod for every slot of the whole program. Empty for a program that may run
// anywhere.
absl::StatusOr<ByNumber<Slot, Core>> AssignCores(
    const tensorflow::tpu::TPUCompileMetadataProto& metadata);

// The same for the replicas of this host only, with this host's numbers of its cores. An error if
// the cores of a replica are on several hosts.
absl::StatusOr<ByNumber<Slot, Core>> CoresHere(
    const tensorflow::tpu::TPUCompileMetadataProto& metadata, const PodShape& pod);

// The devices of `replicas` replicas, given their cores in order. Null if there are no cores.
std::shared_ptr<const xla::DeviceAssignment> ToDeviceAssignment(const ByNumber<Slot, Core>& cores,
                                                                int replicas, int partitions);

// The number of cores over which XLA splits every op.
int NumPartitions(const tensorflow::tpu::TPUCompileMetadataProto& metadata);

// Describes the program except for its name, its executable, and the sizes of dynamic arguments and
// results, which its module contains.
absl::StatusOr<CompiledProgram> DescribeProgram(
    const LoweredModule& lowered, const tensorflow::tpu::TPUCompileMetadataProto& metadata);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_BUILD_PROGRAM_DESCRIPTION_H_
