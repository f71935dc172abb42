// What is known of a program before it is compiled.
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

// The core in the pod of every slot of the whole program; empty for one that may run anywhere.
absl::StatusOr<ByNumber<Slot, Core>> AssignCores(
    const tensorflow::tpu::TPUCompileMetadataProto& metadata);

// The same of the replicas of this host alone, whose cores have their numbers here. An error if the
// cores of a replica are on several hosts.
absl::StatusOr<ByNumber<Slot, Core>> CoresHere(
    const tensorflow::tpu::TPUCompileMetadataProto& metadata, const PodShape& pod);

// The devices of so many replicas with the cores in their order; null if there are none.
std::shared_ptr<const xla::DeviceAssignment> ToDeviceAssignment(const ByNumber<Slot, Core>& cores,
                                                                int replicas, int partitions);

// On how many cores XLA splits every op.
int NumPartitions(const tensorflow::tpu::TPUCompileMetadataProto& metadata);

// The program without a name and an executable, and without the sizes of dynamic arguments and
// results, which its module tells.
absl::StatusOr<CompiledProgram> DescribeProgram(
    const LoweredModule& lowered, const tensorflow::tpu::TPUCompileMetadataProto& metadata);

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_COMPILER_BUILD_PROGRAM_DESCRIPTION_H_
