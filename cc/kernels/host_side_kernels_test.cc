// Tests the kernels that need no compiled program: collectives of one replica, the start of the
// system, what is left in the host graph, and the CPU's kernels on a core.
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "cc/base/tensor_testing.h"
#include "cc/kernels/kernel_testing.h"
#include "cc/ops/op_names.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_def.pb.h"
#include "tensorflow/core/framework/resource_handle.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/protobuf/tpu/topology.pb.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::AddNodeAttr;
using tensorflow::DataType;
using tensorflow::NodeDef;
using tensorflow::ResourceHandle;
using tensorflow::Tensor;
using tensorflow::TensorShape;

class HostSideKernelsTest : public ::testing::Test {
 protected:
  // The text of an error; empty if there was none.
  static std::string ErrorOf(const absl::StatusOr<Tensor>& result) {
    return std::string(result.status().message());
  }

  static NodeDef Typed(const std::string& op, DataType type = tensorflow::DT_FLOAT) {
    return KernelRunner::Node(op, [type](NodeDef* node) { AddNodeAttr("T", type, node); });
  }

  // A variable named "v" on the device.
  Tensor VariableOn(const std::string& device) { return runner_.Variable(device, "v", {2}); }

  KernelRunner runner_;
};

TEST_F(HostSideKernelsTest, CrossReplicaSumOfOneReplicaIsItsInput) {
  const Tensor x = MakeTensor<float>({1, 2, 3}, {3});
  const auto sum =
      runner_.RunOne(Typed("CrossReplicaSum"), "CPU:0", {x, MakeTensor<int32_t>({0}, {1, 1})});
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_EQ(ValuesOf<float>(*sum), ValuesOf<float>(x));
  const auto other =
      runner_.RunOne(Typed("CrossReplicaSum"), "CPU:0", {x, MakeTensor<int32_t>({0, 1}, {1, 2})});
  EXPECT_TRUE(absl::IsInvalidArgument(other.status()));
  EXPECT_TRUE(absl::StrContains(ErrorOf(other), "names replica 1")) << ErrorOf(other);
  EXPECT_TRUE(absl::StrContains(ErrorOf(other), "tpu.replicate")) << ErrorOf(other);
}

TEST_F(HostSideKernelsTest, AllToAllOfOneReplicaIsItsInput) {
  const auto node = [](int split_count) {
    return KernelRunner::Node("AllToAll", [split_count](NodeDef* node) {
      AddNodeAttr("T", tensorflow::DT_FLOAT, node);
      AddNodeAttr("concat_dimension", 0, node);
      AddNodeAttr("split_dimension", 1, node);
      AddNodeAttr("split_count", split_count, node);
    });
  };
  const Tensor x = MakeTensor<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor alone = MakeTensor<int32_t>({0}, {1, 1});
  const auto same = runner_.RunOne(node(1), "CPU:0", {x, alone});
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(ValuesOf<float>(*same), ValuesOf<float>(x));
  EXPECT_EQ(same->shape(), x.shape());
  const auto uneven = runner_.RunOne(node(2), "CPU:0", {x, MakeTensor<int32_t>({0, 1}, {1, 2})});
  EXPECT_TRUE(absl::StrContains(ErrorOf(uneven), "split_count")) << ErrorOf(uneven);
}

TEST_F(HostSideKernelsTest, CollectivePermuteKeepsOrZeroesTheInput) {
  const Tensor x = MakeTensor<float>({1, 2}, {2});
  const auto kept =
      runner_.RunOne(Typed("CollectivePermute"), "CPU:0", {x, MakeTensor<int32_t>({0, 0}, {1, 2})});
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(ValuesOf<float>(*kept), ValuesOf<float>(x));
  const auto zeros =
      runner_.RunOne(Typed("CollectivePermute"), "CPU:0", {x, MakeTensor<int32_t>({}, {0, 2})});
  ASSERT_TRUE(zeros.ok()) << zeros.status();
  EXPECT_EQ(ValuesOf<float>(*zeros), (std::vector<float>{0, 0}));
  const auto odd =
      runner_.RunOne(Typed("CollectivePermute"), "CPU:0", {x, MakeTensor<int32_t>({0}, {1, 1})});
  EXPECT_TRUE(absl::StrContains(ErrorOf(odd), "[pairs, 2]")) << ErrorOf(odd);
}

TEST_F(HostSideKernelsTest, StartGivesTheTopologyOfTheMachine) {
  for (const char* device : {"TPU_SYSTEM:0", "CPU:0"}) {
    const auto serialized = runner_.RunOne(KernelRunner::Node("ConfigureDistributedTPU"), device);
    ASSERT_TRUE(serialized.ok()) << serialized.status();
    tensorflow::tpu::TopologyProto topology;
    ASSERT_TRUE(topology.ParseFromString(serialized->scalar<tensorflow::tstring>()()));
    EXPECT_EQ(topology.num_tasks(), 1);
    EXPECT_EQ(topology.num_tpu_devices_per_task(), KernelRunner::kCores);
    const auto stopped = runner_.Run(KernelRunner::Node("ShutdownDistributedTPU"), device);
    EXPECT_TRUE(stopped.ok()) << stopped.status();
  }
}

TEST_F(HostSideKernelsTest, DTensorIsRefused) {
  const auto started =
      runner_.Run(KernelRunner::Node("ConfigureAndInitializeGlobalTPU"), "TPU_SYSTEM:0");
  EXPECT_TRUE(absl::IsUnimplemented(started.status())) << started.status();
}

TEST_F(HostSideKernelsTest, DummyInputIsZeros) {
  const tensorflow::OpDef* op = nullptr;
  if (!tensorflow::OpRegistry::Global()->LookUpOpDef("TPUDummyInput", &op).ok()) {
    GTEST_SKIP() << "TensorFlow 2.19 has no such op";
  }
  for (const char* device : {"CPU:0", "TPU:1"}) {
    const auto zeros =
        runner_.RunOne(KernelRunner::Node("TPUDummyInput",
                                          [](NodeDef* node) {
                                            AddNodeAttr("dtype", tensorflow::DT_FLOAT, node);
                                            AddNodeAttr("shape", TensorShape({2, 2}), node);
                                          }),
                       device);
    ASSERT_TRUE(zeros.ok()) << zeros.status();
    EXPECT_EQ(zeros->shape(), TensorShape({2, 2}));
    EXPECT_EQ(ValuesOf<float>(*zeros), std::vector<float>(4, 0));
  }
}

TEST_F(HostSideKernelsTest, CoresTakeTurns) {
  std::multiset<int> cores;
  for (int i = 0; i < 3 * KernelRunner::kCores; ++i) {
    const auto core = runner_.RunOne(KernelRunner::Node("TPUOrdinalSelector"), "CPU:0");
    ASSERT_TRUE(core.ok()) << core.status();
    cores.insert(core->scalar<int32_t>()());
  }
  for (int core = 0; core < KernelRunner::kCores; ++core) EXPECT_EQ(cores.count(core), 3) << core;
}

TEST_F(HostSideKernelsTest, HostHandleLetsTheHostReadAVariableOfACore) {
  const Tensor handle = VariableOn("TPU:2");
  ASSERT_TRUE(runner_.Assign("TPU:2", handle, MakeTensor<float>({3, 4}, {2})).ok());
  // The host's kernels refuse the core's own handle.
  EXPECT_FALSE(runner_.Read("CPU:0", handle).ok());
  const auto on_host = runner_.RunOne(KernelRunner::Node(kHostHandleOp), "CPU:0", {handle});
  ASSERT_TRUE(on_host.ok()) << on_host.status();
  const auto value = runner_.Read("CPU:0", *on_host);
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(ValuesOf<float>(*value), (std::vector<float>{3, 4}));
  // The handle names the variable, not a copy of it.
  ASSERT_TRUE(runner_.Assign("TPU:2", handle, MakeTensor<float>({5, 6}, {2})).ok());
  EXPECT_EQ(ValuesOf<float>(*runner_.Read("CPU:0", *on_host)), (std::vector<float>{5, 6}));
  // And it keeps the variable.
  ASSERT_TRUE(runner_.Run(KernelRunner::Node("DestroyResourceOp"), "TPU:2", {handle}).ok());
  EXPECT_EQ(ValuesOf<float>(*runner_.Read("CPU:0", *on_host)), (std::vector<float>{5, 6}));
}

TEST_F(HostSideKernelsTest, HostHandleOfAHandleThatHoldsItsResource) {
  auto* const variable = new tensorflow::Var(tensorflow::DT_FLOAT);
  *variable->tensor() = MakeTensor<float>({7, 8}, {2});
  variable->is_initialized = true;
  Tensor handle(tensorflow::DT_RESOURCE, {});
  handle.scalar<ResourceHandle>()() =
      ResourceHandle::MakeRefCountingHandle(variable, KernelRunner::Name("TPU:1"), {}, {});
  const auto on_host = runner_.RunOne(KernelRunner::Node(kHostHandleOp), "CPU:0", {handle});
  ASSERT_TRUE(on_host.ok()) << on_host.status();
  EXPECT_EQ(on_host->scalar<ResourceHandle>()().device(), KernelRunner::Name("CPU:0"));
  EXPECT_EQ(ValuesOf<float>(*runner_.Read("CPU:0", *on_host)), (std::vector<float>{7, 8}));
}

TEST_F(HostSideKernelsTest, HostHandleSaysWhatIsMissing) {
  const auto missing =
      runner_.RunOne(KernelRunner::Node(kHostHandleOp), "CPU:0", {VariableOn("TPU:3")});
  EXPECT_TRUE(absl::IsFailedPrecondition(missing.status())) << missing.status();
  EXPECT_TRUE(absl::StartsWith(ErrorOf(missing), "Variable 'v' does not exist on "))
      << ErrorOf(missing);
  EXPECT_TRUE(absl::StrContains(ErrorOf(missing), "TPU:3. Create and initialize it"))
      << ErrorOf(missing);
  Tensor other = VariableOn("TPU:3");
  other.scalar<ResourceHandle>()().set_hash_code(1);
  const auto of_other_type = runner_.RunOne(KernelRunner::Node(kHostHandleOp), "CPU:0", {other});
  EXPECT_TRUE(absl::IsNotFound(of_other_type.status())) << of_other_type.status();
  EXPECT_TRUE(absl::StartsWith(ErrorOf(of_other_type), "Resource 'v' ")) << ErrorOf(of_other_type);
}

class VariableHandleTest : public HostSideKernelsTest {
 protected:
  absl::StatusOr<Tensor> HandleOf(Tensor debug_name) {
    return runner_.RunOne(KernelRunner::Node(kVariableHandleOp,
                                             [](NodeDef* node) {
                                               AddNodeAttr("dtype", tensorflow::DT_FLOAT, node);
                                               AddNodeAttr("shape", TensorShape({2}), node);
                                             }),
                          "TPU:1", {std::move(debug_name)});
  }

  bool IsInitialized(const Tensor& handle) {
    const auto known = runner_.RunOne(KernelRunner::Node("VarIsInitializedOp"), "TPU:1", {handle});
    EXPECT_TRUE(known.ok()) << known.status();
    return known.ok() && known->scalar<bool>()();
  }
};

TEST_F(VariableHandleTest, EachIsANewVariableOfTheCore) {
  const auto first = HandleOf(Tensor("v")), second = HandleOf(Tensor("v"));
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  const ResourceHandle& handle = first->scalar<ResourceHandle>()();
  EXPECT_EQ(handle.device(), KernelRunner::Name("TPU:1"));
  ASSERT_EQ(handle.dtypes_and_shapes().size(), 1);
  EXPECT_EQ(handle.dtypes_and_shapes()[0].dtype, tensorflow::DT_FLOAT);
  EXPECT_EQ(handle.dtypes_and_shapes()[0].shape.DebugString(), "[2]");
  EXPECT_FALSE(IsInitialized(*first));
  ASSERT_TRUE(runner_.Assign("TPU:1", *first, MakeTensor<float>({1, 2}, {2})).ok());
  EXPECT_EQ(ValuesOf<float>(*runner_.Read("TPU:1", *first)), (std::vector<float>{1, 2}));
  EXPECT_FALSE(IsInitialized(*second));
}

TEST_F(VariableHandleTest, RefusesNamesThatAreNoScalar) {
  const auto handle = HandleOf(Tensor(tensorflow::DT_STRING, TensorShape({2})));
  EXPECT_TRUE(absl::IsInvalidArgument(handle.status())) << handle.status();
  EXPECT_TRUE(absl::StrContains(ErrorOf(handle), "got a debug_name of shape [2]"))
      << ErrorOf(handle);
}

TEST_F(HostSideKernelsTest, HostBarrierRuns) {
  EXPECT_TRUE(runner_.Run(KernelRunner::Node("TpuExt>HostBarrier"), "CPU:0").ok());
}

TEST_F(HostSideKernelsTest, CoresRunTheKernelsOfTheCpu) {
  const Tensor a = MakeTensor<float>({1, 2, 3, 4}, {2, 2}),
               b = MakeTensor<float>({5, 6, 7, 8}, {2, 2});
  const auto product = runner_.RunOne(Typed("MatMul"), "TPU:0", {a, b});
  ASSERT_TRUE(product.ok()) << product.status();
  EXPECT_EQ(ValuesOf<float>(*product), (std::vector<float>{19, 22, 43, 50}));
  // A TPU does not run what XLA can't compile.
  const auto text = runner_.RunOne(Typed("AsString"), "TPU:0", {a});
  EXPECT_FALSE(text.ok());
}

TEST_F(HostSideKernelsTest, SystemDeviceHasInfrastructureOnly) {
  const auto same =
      runner_.RunOne(Typed("Identity"), "TPU_SYSTEM:0", {MakeTensor<float>({1}, {1})});
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_FALSE(runner_.RunOne(Typed("Neg"), "TPU_SYSTEM:0", {MakeTensor<float>({1}, {1})}).ok());
}

TEST_F(HostSideKernelsTest, OverridesOfUpdatesDoWhatTheOriginalsDo) {
  const Tensor handle = VariableOn("CPU:0");
  ASSERT_TRUE(runner_.Assign("CPU:0", handle, MakeTensor<float>({1, 2}, {2})).ok());
  ASSERT_TRUE(runner_
                  .Run(KernelRunner::Node(
                           HostUpdateOverride("AssignAddVariableOp"),
                           [](NodeDef* node) { AddNodeAttr("dtype", tensorflow::DT_FLOAT, node); }),
                       "CPU:0", {handle, MakeTensor<float>({10, 20}, {2})})
                  .ok());
  EXPECT_EQ(ValuesOf<float>(*runner_.Read("CPU:0", handle)), (std::vector<float>{11, 22}));
  // A scatter op, which has no attribute for locking.
  const auto scattered =
      runner_.Run(KernelRunner::Node(HostUpdateOverride("ResourceScatterAdd"),
                                     [](NodeDef* node) {
                                       AddNodeAttr("dtype", tensorflow::DT_FLOAT, node);
                                       AddNodeAttr("Tindices", tensorflow::DT_INT32, node);
                                     }),
                  "CPU:0", {handle, MakeTensor<int32_t>({1}, {1}), MakeTensor<float>({100}, {1})});
  ASSERT_TRUE(scattered.ok()) << scattered.status();
  EXPECT_EQ(ValuesOf<float>(*runner_.Read("CPU:0", handle)), (std::vector<float>{11, 122}));
}

TEST_F(HostSideKernelsTest, PartitionedCallWantsOneCore) {
  const NodeDef node = KernelRunner::Node("TPUPartitionedCall", [](NodeDef* node) {
    AddNodeAttr("Tin", std::vector<DataType>{}, node);
    AddNodeAttr("Tout", std::vector<DataType>{}, node);
    tensorflow::NameAttrList function;
    function.set_name("nothing");
    AddNodeAttr("f", function, node);
  });
  const auto two = runner_.Run(node, "CPU:0", {MakeTensor<int32_t>({0, 1}, {2})});
  EXPECT_TRUE(absl::StrContains(two.status().message(), "it must be a scalar")) << two.status();
  const auto unknown = runner_.Run(node, "CPU:0", {MakeTensor<int32_t>({0}, {})});
  EXPECT_TRUE(absl::StrContains(unknown.status().message(), "nothing")) << unknown.status();
}

}  // namespace
}  // namespace tf_tpu_ext
