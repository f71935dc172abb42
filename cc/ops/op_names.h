// Names that passes and the compiler also use: those of this package's ops and of TensorFlow's
// marks.
#ifndef TF_TPU_EXT_CC_OPS_OP_NAMES_H_
#define TF_TPU_EXT_CC_OPS_OP_NAMES_H_

namespace tf_tpu_ext {

// Marks on nodes: the computation that they belong to, the cluster of it, and what is compiled by
// itself (jit_compile).
inline constexpr char kTpuReplicate[] = "_tpu_replicate";
inline constexpr char kOutsideCompilation[] = "_xla_outside_compilation";
inline constexpr char kMustCompile[] = "_XlaMustCompile";

// An attribute of a cluster's op: the Python line that made it, if workers would not know it.
inline constexpr char kPythonLine[] = "_tpu_ext_python_line";

// An attribute of an execute op that is placed on the host: the device of the core that it is for.
inline constexpr char kCoreDevice[] = "_tpu_ext_core_device";

// An attribute of a compile op in a pod: it compiles, for its own host, what an op on another host
// starts.
inline constexpr char kCopyForHost[] = "_tpu_ext_copy_for_host";

// An attribute of an op that transfers between a program and its host, in a pod: the task of that
// host, the only one where the op may run.
inline constexpr char kTransferTask[] = "_tpu_ext_transfer_task";

inline constexpr char kVariableHandleOp[] = "TpuExt>VariableHandle";
inline constexpr char kHostHandleOp[] = "TpuExt>HostHandle";
inline constexpr char kHostComputeOp[] = "TpuExt>HostCompute";
inline constexpr char kHostCallOp[] = "TpuExt>HostCall";
// The bridge knows none of these: a HostCall goes through it as the op that the bridge itself makes
// for clusters, with the attributes below in addition.
inline constexpr char kBridgeHostComputeOp[] = "XlaHostCompute";
inline constexpr char kHostFunctionName[] = "_host_function";
inline constexpr char kHostFunctionLibrary[] = "_host_library";
inline constexpr char kHostFunctionSource[] = "_host_source";
inline constexpr char kHostFunctionCluster[] = "_host_cluster";
// An attribute of a HostCall that is being compiled: the number of the program's function that it
// calls.
inline constexpr char kHostFunctionNumber[] = "_host_function_number";
// An attribute of the op that moves an element of a distributed dataset to the core that it is for.
inline constexpr char kForCore[] = "_tpu_ext_for_core";
// The prefix of the names under which clusters of the host graph are counted. The bridge carries
// these names from a cluster's ops to the transfers that it makes, as the names of functions that
// the ops came from.
inline constexpr char kClusterMark[] = "outside_compilation_cluster_";

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_OPS_OP_NAMES_H_
