// Tests the ops of a program in the host graph: one compiles it, one brings each core to the
// launch. Here they compile what the bridge would give them, and run it on the cores of the
// process.
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cc/base/process.h"
#include "cc/base/tensor_testing.h"
#include "cc/kernels/compilation_status.h"
#include "cc/kernels/kernel_testing.h"
#include "cc/ops/op_names.h"
#include "cc/program/program_key.h"
#include "cc/runtime/program_cache.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/resource_handle.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/status.h"
#include "tensorflow/core/platform/statusor.h"
#include "tensorflow/core/protobuf/tpu/compile_metadata.pb.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::AddNodeAttr;
using tensorflow::DataTypeVector;
using tensorflow::NodeDef;
using tensorflow::Tensor;
using tensorflow::tpu::TPUCompileMetadataProto;

// y = -x for two floats.
constexpr char kNegate[] = R"(module attributes {tf.versions = {producer = 1395 : i32}} {
  func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
    %y = "tf.Neg"(%x) : (tensor<2xf32>) -> tensor<2xf32>
    return %y : tensor<2xf32>
  }
})";

// y = x + v, and the new value of v is twice the old one.
constexpr char kUpdate[] = R"(module attributes {tf.versions = {producer = 1395 : i32}} {
  func.func @main(%v: tensor<2xf32>, %x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
    %y = "tf.AddV2"(%x, %v) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %new = "tf.AddV2"(%v, %v) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    return %new, %y : tensor<2xf32>, tensor<2xf32>
  }
})";

// The shape of the program's argument is not known when it is traced.
constexpr char kNegateAny[] = R"(module attributes {tf.versions = {producer = 1395 : i32}} {
  func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
    %y = "tf.Neg"(%x) : (tensor<?xf32>) -> tensor<?xf32>
    return %y : tensor<?xf32>
  }
})";

class ProgramKernelsTest : public testing::Test {
 protected:
  static TPUCompileMetadataProto Metadata(int num_arguments, int num_results,
                                          int64_t argument_size = 2) {
    TPUCompileMetadataProto metadata;
    metadata.set_num_replicas(1);
    metadata.set_num_cores_per_replica(1);
    for (int i = 0; i < num_arguments; ++i) {
      auto* argument = metadata.add_args();
      argument->set_name(absl::StrCat("argument", i));
      argument->set_dtype(tensorflow::DT_FLOAT);
      argument->set_kind(TPUCompileMetadataProto::Arg::PARAMETER);
      argument->mutable_shape()->add_dim()->set_size(argument_size);
    }
    for (int i = 0; i < num_results; ++i) metadata.add_retvals();
    return metadata;
  }

  struct Compiled {
    absl::Status status;
    Tensor serialized_status;
    Tensor key;
  };

  absl::StatusOr<Compiled> Compile(const std::string& module, const std::string& metadata,
                                   const std::vector<Tensor>& dynamic_shapes = {}) {
    const NodeDef node = KernelRunner::Node("_TPUCompileMlir", [&](NodeDef* node) {
      AddNodeAttr("NumDynamicShapes", static_cast<int>(dynamic_shapes.size()), node);
      AddNodeAttr("num_computations", 1, node);
      AddNodeAttr("mlir_module", module, node);
      AddNodeAttr("metadata", metadata, node);
    });
    TF_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs,
                        runner_.Run(node, "CPU:0", dynamic_shapes));
    const std::string status = outputs[0].scalar<tensorflow::tstring>()();
    return Compiled{ParseCompilationStatus(status), outputs[0], outputs[1]};
  }

  // Compiles a program that must compile; returns the key of a launch of it.
  Tensor KeyOf(const std::string& module, const TPUCompileMetadataProto& metadata) {
    const auto compiled = Compile(module, metadata.SerializeAsString());
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    EXPECT_TRUE(compiled->status.ok()) << compiled->status;
    return compiled->key;
  }

  static NodeDef Execute(const DataTypeVector& arguments = {tensorflow::DT_FLOAT}) {
    return KernelRunner::Node("TPUExecute", [&](NodeDef* node) {
      AddNodeAttr("Targs", arguments, node);
      AddNodeAttr("Tresults", DataTypeVector{tensorflow::DT_FLOAT}, node);
    });
  }

  // For kUpdate: the first argument is a variable, and so is the first result.
  static NodeDef ExecuteUpdate() {
    return KernelRunner::Node("TPUExecuteAndUpdateVariables", [](NodeDef* node) {
      AddNodeAttr("Targs", DataTypeVector{tensorflow::DT_RESOURCE, tensorflow::DT_FLOAT}, node);
      AddNodeAttr("Tresults", DataTypeVector{tensorflow::DT_FLOAT}, node);
      AddNodeAttr("device_var_reads_indices", std::vector<int>{0}, node);
      AddNodeAttr("device_var_updates_indices", std::vector<int>{0}, node);
    });
  }

  KernelRunner runner_;
};

using Floats = std::vector<float>;

TEST_F(ProgramKernelsTest, AProgramRunsOnAnyCore) {
  for (int core = 0; core < KernelRunner::kCores; ++core) {
    const auto results =
        runner_.Run(Execute(), absl::StrCat("TPU:", core),
                    {MakeVector<float>({1.5, -2}), KeyOf(kNegate, Metadata(1, 1))});
    ASSERT_TRUE(results.ok()) << results.status();
    ASSERT_EQ(results->size(), 1);
    EXPECT_EQ(ValuesOf<float>((*results)[0]), Floats({-1.5, 2}));
  }
}

TEST_F(ProgramKernelsTest, EachLaunchOfAProgramHasANumberOfItsOwn) {
  const auto first = DecodeProgramKey(KeyOf(kNegate, Metadata(1, 1)));
  const auto second = DecodeProgramKey(KeyOf(kNegate, Metadata(1, 1)));
  const auto other = DecodeProgramKey(KeyOf(kUpdate, Metadata(2, 2)));
  ASSERT_TRUE(first.ok() && second.ok() && other.ok());
  EXPECT_EQ(first->program_id, second->program_id);
  EXPECT_NE(first->program_id, other->program_id);
  EXPECT_LT(first->launch_id, second->launch_id);
  EXPECT_LT(second->launch_id, other->launch_id);
}

TEST_F(ProgramKernelsTest, ReplicasMeetInTheirLaunch) {
  TPUCompileMetadataProto metadata = Metadata(1, 1);
  metadata.set_num_replicas(2);
  const Tensor key = KeyOf(kNegate, metadata);
  const auto first = runner_.Start(Execute(), "TPU:0", {MakeVector<float>({1, 2}), key}, {});
  ASSERT_TRUE(first.ok()) << first.status();
  // Nothing starts before the last core has arrived.
  EXPECT_FALSE((*first)->has_ended());
  const auto second = runner_.Run(Execute(), "TPU:1", {MakeVector<float>({10, 20}), key});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(ValuesOf<float>((*second)[0]), Floats({-10, -20}));
  const auto of_first = (*first)->Wait();
  ASSERT_TRUE(of_first.ok()) << of_first.status();
  EXPECT_EQ(ValuesOf<float>((*of_first)[0]), Floats({-1, -2}));
  // The program runs on two cores, and this is not one of them.
  const absl::Status third =
      runner_.Run(Execute(), "TPU:2", {MakeVector<float>({1, 2}), KeyOf(kNegate, metadata)})
          .status();
  EXPECT_EQ(third.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(third.message(), "core 2")) << third;
}

TEST_F(ProgramKernelsTest, ACancelledStepWaitsForNoCore) {
  TPUCompileMetadataProto metadata = Metadata(1, 1);
  metadata.set_num_replicas(2);
  const std::vector<Tensor> inputs = {MakeVector<float>({1, 2}), KeyOf(kNegate, metadata)};
  tensorflow::CancellationManager cancellation;
  const auto alone = runner_.Start(Execute(), "TPU:0", inputs, {1, &cancellation});
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_FALSE((*alone)->has_ended());
  cancellation.StartCancel();
  EXPECT_EQ((*alone)->Wait().status().code(), absl::StatusCode::kCancelled);
}

TEST_F(ProgramKernelsTest, ACoreThatCannotComeTellsTheOthers) {
  TPUCompileMetadataProto metadata = Metadata(2, 2);
  metadata.set_num_replicas(2);
  const Tensor key = KeyOf(kUpdate, metadata);
  const Tensor x = MakeVector<float>({1, 2});
  const Tensor there = runner_.Variable("TPU:0", "there", {2});
  ASSERT_TRUE(runner_.Assign("TPU:0", there, x).ok());
  const auto waiting = runner_.Start(ExecuteUpdate(), "TPU:0", {there, x, key}, {});
  ASSERT_TRUE(waiting.ok()) << waiting.status();
  EXPECT_FALSE((*waiting)->has_ended());
  const Tensor missing = runner_.Variable("TPU:1", "missing", {2});
  const absl::Status status = runner_.Run(ExecuteUpdate(), "TPU:1", {missing, x, key}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  const absl::Status told = (*waiting)->Wait().status();
  EXPECT_EQ(told.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(told.message(), "Variable 'missing'")) << told;
  // The other replica's variable is unchanged.
  EXPECT_EQ(ValuesOf<float>(*runner_.Read("TPU:0", there)), Floats({1, 2}));
}

TEST_F(ProgramKernelsTest, VariablesAreReadAndWritten) {
  const Tensor v = runner_.Variable("TPU:2", "updated", {2});
  ASSERT_TRUE(runner_.Assign("TPU:2", v, MakeVector<float>({3, 5})).ok());
  Floats expected = {3, 5};
  for (int step = 0; step < 3; ++step) {
    const auto results =
        runner_.Run(ExecuteUpdate(), "TPU:2",
                    {v, MakeVector<float>({100, 200}), KeyOf(kUpdate, Metadata(2, 2))});
    ASSERT_TRUE(results.ok()) << results.status();
    // The variable's new value is not among the op's outputs.
    ASSERT_EQ(results->size(), 1);
    EXPECT_EQ(ValuesOf<float>((*results)[0]), Floats({100 + expected[0], 200 + expected[1]}));
    for (float& value : expected) value *= 2;
    EXPECT_EQ(ValuesOf<float>(*runner_.Read("TPU:2", v)), expected);
  }
}

TEST_F(ProgramKernelsTest, VariablesMustBeThere) {
  const Tensor x = MakeVector<float>({1, 2});
  const auto run = [&](const Tensor& variable) {
    return runner_.Run(ExecuteUpdate(), "TPU:1", {variable, x, KeyOf(kUpdate, Metadata(2, 2))})
        .status();
  };
  absl::Status status = run(runner_.Variable("TPU:1", "nowhere", {2}));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StartsWith(status.message(),
                               "Variable 'nowhere', argument 0 of TPU computation node, does not "
                               "exist on /job:localhost/replica:0/task:0/device:TPU:1."))
      << status;
  const Tensor emptied = runner_.Variable("TPU:1", "emptied", {2});
  ASSERT_TRUE(runner_.Assign("TPU:1", emptied, x).ok());
  tensorflow::Var* variable = nullptr;
  const auto& handle = emptied.scalar<tensorflow::ResourceHandle>()();
  ASSERT_TRUE(runner_.device("TPU:1")
                  ->resource_manager()
                  ->Lookup(handle.container(), handle.name(), &variable)
                  .ok());
  variable->is_initialized = false;
  variable->Unref();
  status = run(emptied);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(status.message(), "is not initialized on ")) << status;
}

TEST_F(ProgramKernelsTest, IndicesOfVariablesThatFitNoProgramAreErrors) {
  const Tensor v = runner_.Variable("TPU:0", "kept", {2});
  const Tensor x = MakeVector<float>({1, 2});
  ASSERT_TRUE(runner_.Assign("TPU:0", v, x).ok());
  const auto run = [&](const std::vector<int>& reads, const std::vector<int>& updates) {
    NodeDef node = ExecuteUpdate();
    node.mutable_attr()->erase("device_var_reads_indices");
    node.mutable_attr()->erase("device_var_updates_indices");
    AddNodeAttr("device_var_reads_indices", reads, &node);
    AddNodeAttr("device_var_updates_indices", updates, &node);
    const absl::Status status =
        runner_.Run(node, "TPU:0", {v, x, KeyOf(kUpdate, Metadata(2, 2))}).status();
    return std::string(status.message());
  };
  // No argument, the key, an argument that is not a variable.
  for (const int read : {-1, 2, 7, 1}) {
    EXPECT_TRUE(absl::StrContains(run({read}, {0}), "is not the number of an argument")) << read;
  }
  EXPECT_TRUE(absl::StrContains(run({0}, {2}), "has output 2; the program returns 2 values"));
  EXPECT_TRUE(absl::StrContains(run({0, 0}, {0, 0}), "has output 0 twice"));
  EXPECT_TRUE(absl::StrContains(run({0}, {0, 1}), "the numbers must be equal"));
  EXPECT_EQ(ValuesOf<float>(*runner_.Read("TPU:0", v)), Floats({1, 2}));
  EXPECT_EQ(run({0}, {0}), "");
}

TEST_F(ProgramKernelsTest, ArgumentsOfAnotherProgramAreErrors) {
  const auto run = [&](const DataTypeVector& types, std::vector<Tensor> inputs) {
    inputs.push_back(KeyOf(kNegate, Metadata(1, 1)));
    return std::string(runner_.Run(Execute(types), "TPU:0", inputs).status().message());
  };
  // Each has the same number of bytes.
  EXPECT_TRUE(absl::StrContains(run({tensorflow::DT_INT32}, {MakeVector<int32_t>({1, 2})}),
                                "is int32[2] (8 bytes); the program was compiled for f32[2]"));
  EXPECT_TRUE(absl::StrContains(run({tensorflow::DT_FLOAT}, {MakeTensor<float>({1, 2}, {1, 2})}),
                                "is float[1,2] (8 bytes); the program was compiled for f32[2]"));
  EXPECT_TRUE(absl::StrContains(run({}, {}), "takes argument 0, but got only 0 arguments"));
  EXPECT_EQ(run({tensorflow::DT_FLOAT}, {MakeVector<float>({1, 2})}), "");
}

TEST_F(ProgramKernelsTest, DamagedMetadataIsAnError) {
  const auto compile = [&](const TPUCompileMetadataProto& metadata) {
    const auto compiled = Compile(kNegate, metadata.SerializeAsString());
    return std::string((compiled.ok() ? compiled->status : compiled.status()).message());
  };
  TPUCompileMetadataProto metadata = Metadata(1, 1);
  metadata.set_num_replicas(std::numeric_limits<int32_t>::max());
  metadata.set_num_cores_per_replica(2);
  EXPECT_TRUE(absl::StrContains(compile(metadata), "The computation needs 4294967294 cores"));
  metadata.set_num_replicas(-1);
  EXPECT_TRUE(absl::StrContains(compile(metadata), "has -1 replicas of 2 cores"));
  metadata = Metadata(1, 1);
  auto* shape = metadata.mutable_args(0)->mutable_shape();
  for (int i = 0; i < 3; ++i) shape->add_dim()->set_size(int64_t{1} << 40);
  EXPECT_NE(compile(metadata), "");
  EXPECT_NE(compile(Metadata(0, 0)), "");
  EXPECT_NE(compile(Metadata(2, 1)), "");
  EXPECT_EQ(compile(Metadata(1, 1)), "");
}

TEST_F(ProgramKernelsTest, AModuleThatCallsItselfIsAnError) {
  constexpr char kRecursive[] = R"(module attributes {tf.versions = {producer = 1395 : i32}} {
  func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
    %y = "tf.StatefulPartitionedCall"(%x) <{config = "", config_proto = "", executor_type = "", f = @main}> : (tensor<2xf32>) -> tensor<2xf32>
    return %y : tensor<2xf32>
  }
})";
  const auto compiled = Compile(kRecursive, Metadata(1, 1).SerializeAsString());
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_TRUE(absl::StrContains(compiled->status.message(), "calls itself: main -> main"))
      << compiled->status;
}

TEST_F(ProgramKernelsTest, AStatusThatIsNoScalarIsAnError) {
  const NodeDef node = KernelRunner::Node("TPUCompileSucceededAssert", [](NodeDef*) {});
  for (const std::vector<tensorflow::tstring>& values :
       {std::vector<tensorflow::tstring>{}, std::vector<tensorflow::tstring>{"a", "b"}}) {
    const absl::Status status =
        runner_.Run(node, "CPU:0", {MakeVector<tensorflow::tstring>(values)}).status();
    EXPECT_TRUE(absl::StrContains(status.message(), "it must be a scalar")) << status;
  }
}

TEST_F(ProgramKernelsTest, FromTheHostAnOpServesTheCoreThatItNames) {
  NodeDef node = ExecuteUpdate();
  AddNodeAttr(kCoreDevice, KernelRunner::Name("TPU:3"), &node);
  const Tensor v = runner_.Variable("TPU:3", "from_host", {2});
  ASSERT_TRUE(runner_.Assign("TPU:3", v, MakeVector<float>({1, 1})).ok());
  const auto results =
      runner_.Run(node, "CPU:0", {v, MakeVector<float>({5, 6}), KeyOf(kUpdate, Metadata(2, 2))});
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(ValuesOf<float>((*results)[0]), Floats({6, 7}));
  EXPECT_EQ(ValuesOf<float>(*runner_.Read("TPU:3", v)), Floats({2, 2}));

  const Tensor elsewhere = runner_.Variable("TPU:2", "from_host", {2});
  absl::Status status =
      runner_
          .Run(node, "CPU:0",
               {elsewhere, MakeVector<float>({5, 6}), KeyOf(kUpdate, Metadata(2, 2))})
          .status();
  EXPECT_TRUE(absl::StrContains(status.message(), "It is a variable of ")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "TPU:2")) << status;
  status = runner_.Run(Execute(), "CPU:0", {MakeVector<float>({1, 2}), Tensor()}).status();
  EXPECT_TRUE(absl::StrContains(status.message(), "must be placed on a core")) << status;
}

TEST_F(ProgramKernelsTest, ShapesOfArgumentsMayComeWithTheStep) {
  const std::string metadata = Metadata(1, 1, /*argument_size=*/-1).SerializeAsString();
  for (const Floats& x : {Floats({1, 2, 3}), Floats({4}), Floats({5, 6, 7})}) {
    const auto compiled =
        Compile(kNegateAny, metadata, {MakeVector<int64_t>({static_cast<int64_t>(x.size())})});
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    ASSERT_TRUE(compiled->status.ok()) << compiled->status;
    const auto results = runner_.Run(Execute(), "TPU:0", {MakeVector(x), compiled->key});
    ASSERT_TRUE(results.ok()) << results.status();
    Floats expected;
    for (float value : x) expected.push_back(-value);
    EXPECT_EQ(ValuesOf<float>((*results)[0]), expected);
  }
  const absl::Status status = Compile(kNegateAny, metadata).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(absl::StrContains(status.message(), "argument 'argument0' has none")) << status;
}

TEST_F(ProgramKernelsTest, AFailedCompilationIsToldByItsStatus) {
  const std::string broken = "module { func.func @main() { \"tf.NoSuchOp\"() : () -> () } }";
  const auto compiled = Compile(broken, Metadata(0, 0).SerializeAsString());
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_FALSE(compiled->status.ok());
  const NodeDef assert_succeeded = KernelRunner::Node("TPUCompileSucceededAssert");
  const absl::Status asserted =
      runner_.Run(assert_succeeded, "CPU:0", {compiled->serialized_status}).status();
  EXPECT_EQ(asserted.code(), compiled->status.code());
  EXPECT_EQ(asserted.message(), absl::StrCat("Compilation failure: ", compiled->status.message()));
  const absl::Status executed =
      runner_.Run(Execute(), "TPU:0", {MakeVector<float>({1, 2}), compiled->key}).status();
  EXPECT_EQ(executed.code(), compiled->status.code());
  EXPECT_TRUE(tsl::StatusGroup::IsDerived(executed)) << executed;

  const auto good = Compile(kNegate, Metadata(1, 1).SerializeAsString());
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_TRUE(runner_.Run(assert_succeeded, "CPU:0", {good->serialized_status}).ok());
}

TEST_F(ProgramKernelsTest, ErrorsTellNoInventedPlace) {
  constexpr char kAsString[] = R"(module attributes {tf.versions = {producer = 1395 : i32}} {
    func.func @main(%x: tensor<2xf32>) -> tensor<2x!tf_type.string> {
      %y = "tf.AsString"(%x) : (tensor<2xf32>) -> tensor<2x!tf_type.string>
      return %y : tensor<2x!tf_type.string>
    }
  })";
  const auto compiled = Compile(kAsString, Metadata(1, 1).SerializeAsString());
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_EQ(compiled->status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(compiled->status.message(), "AsString")) << compiled->status;
  EXPECT_FALSE(absl::StrContains(compiled->status.message(), "dummy_file_name"))
      << compiled->status;
}

TEST_F(ProgramKernelsTest, TheMachineMustHaveTheCores) {
  TPUCompileMetadataProto metadata = Metadata(1, 1);
  metadata.set_num_replicas(KernelRunner::kCores + 1);
  const auto compiled = Compile(kNegate, metadata.SerializeAsString());
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_EQ(compiled->status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(compiled->status.message(),
                                "needs 5 cores (5 replicas of 1); this virtual TPU has 4"))
      << compiled->status;
}

TEST_F(ProgramKernelsTest, MetadataOfAnotherBridgeIsRefused) {
  const absl::Status status = Compile(kNegate, "no metadata").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "is not a TPUCompileMetadataProto")) << status;
}

}  // namespace
}  // namespace tf_tpu_ext
