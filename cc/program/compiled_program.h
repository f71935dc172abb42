// What the compiler passes to the runtime: plain data that neither changes after that.
#ifndef TF_TPU_EXT_CC_PROGRAM_COMPILED_PROGRAM_H_
#define TF_TPU_EXT_CC_PROGRAM_COMPILED_PROGRAM_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/core_numbers.h"
#include "cc/base/number.h"
#include "cc/base/pod_shape.h"
#include "cc/program/batched_replicas.h"
#include "cc/program/host_function_source.h"
#include "cc/program/padded_argument.h"
#include "cc/program/probes.h"
#include "cc/program/shared_update.h"
#include "cc/program/taken_queues.h"
#include "cc/program/value_numbers.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/types.pb.h"

namespace xla {
class DeviceAssignment;
class Executable;
}  // namespace xla

namespace tf_tpu_ext {

struct CompiledProgram {
  struct Output {
    tensorflow::DataType dtype = tensorflow::DT_INVALID;
    // Set if the compiler knew the value: such an output is not computed.
    std::shared_ptr<const tensorflow::Tensor> constant;
    // Dimensions that the executable pads, each with the result that holds its true size, an int32.
    std::vector<std::pair<int, ResultNumber>> dynamic_sizes;
  };
  // One core's share of a program whose partitions run as one: for each argument that the core's op
  // brings, and each output that it wants, the corresponding one of the program.
  struct CoreSlice {
    ByNumber<ArgumentNumber, ArgumentNumber> arguments;
    ByNumber<OutputNumber, OutputNumber> outputs;
  };

  std::string name;
  int64_t id = 0;
  // For a program that runs on several hosts: this host's replicas, the only ones that have slots
  // here.
  int num_replicas = 1;
  int num_cores_per_replica = 1;
  // Null if `batched` is set.
  std::shared_ptr<xla::Executable> executable;
  // Empty for a single-core program, which runs wherever it is sent.
  ByNumber<Slot, Core> cores;
  // The same as XLA wants it: by replica and partition, including those of other hosts, with cores
  // numbered within the pod; null if `cores` is empty.
  std::shared_ptr<const xla::DeviceAssignment> device_assignment;
  // The pod that this host is part of, and the hosts that run the program; empty without a pod.
  PodShape pod;
  std::set<Host> hosts;
  // For each parameter of the executable, the argument it takes.
  ByNumber<ParameterNumber, ArgumentNumber> parameter_arguments;
  ByNumber<OutputNumber, Output> outputs;
  // The host functions that the program itself calls.
  std::vector<HostFunctionSource> host_functions;
  // What the program takes from its cores' queues.
  TakenQueues takes;
  // Empty unless the replica's cores share one executable run (placement without SPMD).
  ByNumber<LogicalCore, CoreSlice> core_slices;
  // Inputs that the host has padded.
  std::vector<PaddedArgument> padded_arguments;
  // What the executable shows of its values; null if the program is not watched.
  std::shared_ptr<const Probes> probes;
  // What runs once after all replicas; null if nothing was split off.
  std::shared_ptr<const SharedUpdate> shared_update;
  // How many outputs at the end are for the shared update: their memory comes back.
  int num_combined_outputs = 0;
  // How the replicas run in groups; null if each runs on its own.
  std::shared_ptr<const BatchedReplicas> batched;
  // The variables that the executable overwrites, if it is allowed to, each with its new value.
  std::vector<std::pair<ArgumentNumber, OutputNumber>> overwritten_variables;
  // Whether it exchanges values with the host while it runs.
  bool has_host_transfers = false;
  // Whether it may wait for other cores or the host.
  bool waits = true;

  bool runs_on_other_hosts() const { return hosts.size() > 1; }
  int num_slots() const { return num_replicas * num_cores_per_replica; }
  Replica ReplicaOf(Slot slot) const { return Replica(slot.value() / num_cores_per_replica); }
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_PROGRAM_COMPILED_PROGRAM_H_
