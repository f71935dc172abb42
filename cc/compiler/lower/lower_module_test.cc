// Lowers modules as the bridge emits them, runs them on XLA's interpreter, and compares the results
// with plain loops.
#include "cc/compiler/lower/lower_module.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cc/ops/op_names.h"
#include "cc/program/kernel_call.h"
#include "cc/program/lowering.h"
#include "gtest/gtest.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/types.pb.h"
#include "tensorflow/core/protobuf/tpu/compile_metadata.pb.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/hlo/evaluator/hlo_evaluator.h"
#include "xla/hlo/ir/hlo_computation.h"
#include "xla/hlo/ir/hlo_instruction.h"
#include "xla/hlo/ir/hlo_module.h"
#include "xla/hlo/ir/hlo_opcode.h"
#include "xla/hlo/ir/hlo_sharding.h"
#include "xla/literal.h"
#include "xla/literal_util.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"
#include "xla/xla.pb.h"
#include "xla/xla_data.pb.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::TensorShape;
using Metadata = tensorflow::tpu::TPUCompileMetadataProto;
using Values = std::vector<float>;

// The attributes from which a host computation was compiled. The real kernel is in a room above.
struct SeenHostCompute {
  std::string send_key, counted_as;
  int64_t program_replicas = 0;
};
std::vector<SeenHostCompute>* seen = new std::vector<SeenHostCompute>;

class FakeHostCompute : public tensorflow::XlaOpKernel {
 public:
  explicit FakeHostCompute(tensorflow::OpKernelConstruction* construction)
      : XlaOpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("send_key", &seen_.send_key));
    OP_REQUIRES_OK(construction, construction->GetAttr("counted_as", &seen_.counted_as));
  }
  void Compile(tensorflow::XlaOpKernelContext* context) override {
    seen_.program_replicas = GetLowering(context->op_kernel_context()->resource_manager()).replicas;
    seen->push_back(seen_);
    context->SetOutput(0, xla::Neg(context->Input(0)));
  }
  SeenHostCompute seen_;
};
REGISTER_XLA_OP(Name("TpuExt>HostCompute"), FakeHostCompute);

std::string Module(const std::string& functions) {
  return absl::StrCat(
      "module attributes {tf.versions = {bad_consumers = [], min_consumer = 0 : i32, "
      "producer = 1395 : i32}} {\n",
      functions, "\n}\n");
}

struct Program {
  explicit Program(const std::vector<TensorShape>& argument_shapes, int cores_per_replica = 1)
      : shapes(argument_shapes) {
    metadata.set_num_replicas(1);
    metadata.set_num_cores_per_replica(cores_per_replica);
    for (size_t i = 0; i < shapes.size(); ++i) {
      Metadata::Arg* argument = metadata.add_args();
      argument->set_kind(Metadata::Arg::PARAMETER);
      argument->set_dtype(tensorflow::DT_FLOAT);
      argument->set_name(absl::StrCat("argument", i));
      argument->mutable_sharding()->set_type(xla::OpSharding::REPLICATED);
    }
    metadata.add_retvals()->mutable_sharding()->set_type(xla::OpSharding::REPLICATED);
  }

  absl::Status Lower(const std::string& module) {
    return LowerModule(module, metadata, shapes, &lowered);
  }

  absl::StatusOr<std::unique_ptr<xla::HloModule>> Hlo() const {
    const xla::HloModuleProto& proto = lowered.result.computation->proto();
    TF_ASSIGN_OR_RETURN(const xla::HloModuleConfig config,
                        xla::HloModule::CreateModuleConfigFromProto(proto, xla::DebugOptions()));
    return xla::HloModule::CreateFromProto(proto, config);
  }

  // The first result for these values of the arguments, which have the program's shapes.
  absl::StatusOr<Values> Run(const std::vector<Values>& arguments) const {
    TF_ASSIGN_OR_RETURN(const std::unique_ptr<xla::HloModule> module, Hlo());
    std::vector<xla::Literal> literals;
    for (int number : lowered.result.input_mapping) {
      TF_ASSIGN_OR_RETURN(
          xla::Literal literal,
          xla::LiteralUtil::CreateR1<float>(arguments[number]).Reshape(shapes[number].dim_sizes()));
      literals.push_back(std::move(literal));
    }
    std::vector<const xla::Literal*> pointers;
    for (const xla::Literal& literal : literals) pointers.push_back(&literal);
    TF_ASSIGN_OR_RETURN(xla::Literal result, xla::HloEvaluator().Evaluate(*module, pointers));
    const xla::Literal first = std::move(result.DecomposeTuple()[0]);
    const auto values = first.data<float>();
    return Values(values.begin(), values.end());
  }

  // Counts instructions in the whole module.
  int Count(const std::function<bool(const xla::HloInstruction&)>& counts) const {
    const auto module = Hlo();
    EXPECT_TRUE(module.ok()) << module.status();
    int count = 0;
    for (const xla::HloComputation* computation : (*module)->computations()) {
      for (const xla::HloInstruction* instruction : computation->instructions()) {
        count += counts(*instruction) ? 1 : 0;
      }
    }
    return count;
  }

  std::vector<TensorShape> shapes;
  Metadata metadata;
  LoweredModule lowered;
};

const std::string& Sum() {
  static const auto* const module = new std::string(Module(R"mlir(
  func.func @main(%arg0: tensor<?x3xf32>, %arg1: tensor<3xf32>) -> tensor<?x3xf32> {
    %0 = "tf.AddV2"(%arg0, %arg1) : (tensor<?x3xf32>, tensor<3xf32>) -> tensor<?x3xf32>
    func.return %0 : tensor<?x3xf32>
  })mlir"));
  return *module;
}

TEST(LowerModuleTest, ComputesForTheShapesOfItsArguments) {
  for (const int rows : {0, 1, 2}) {
    Program program({TensorShape({rows, 3}), TensorShape({3})});
    const absl::Status status = program.Lower(Sum());
    ASSERT_TRUE(status.ok()) << status;
    Values x(rows * 3), expected;
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<float>(i * i);
      expected.push_back(x[i] + static_cast<float>(10 + i % 3));
    }
    const auto result = program.Run({x, {10, 11, 12}});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(*result, expected) << rows;
    EXPECT_FALSE(program.lowered.has_host_transfers);
    EXPECT_TRUE(program.lowered.host_functions.empty());
    EXPECT_EQ(program.lowered.result.input_mapping, (std::vector<int>{0, 1}));
  }
}

TEST(LowerModuleTest, OpsOnConstantsAreFolded) {
  Program program({TensorShape({2})});
  program.metadata.add_retvals();
  const absl::Status status = program.Lower(Module(R"mlir(
  func.func @main(%arg0: tensor<2xf32>) -> (tensor<2xf32>, tensor<f32>) {
    %0 = "tf.Const"() {value = dense<40.0> : tensor<f32>} : () -> tensor<f32>
    %1 = "tf.Const"() {value = dense<2.0> : tensor<f32>} : () -> tensor<f32>
    %2 = "tf.AddV2"(%0, %1) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    func.return %arg0, %2 : tensor<2xf32>, tensor<f32>
  })mlir"));
  ASSERT_TRUE(status.ok()) << status;
  const auto hlo = program.Hlo();
  ASSERT_TRUE(hlo.ok()) << hlo.status();
  const xla::HloInstruction* answer = (*hlo)->entry_computation()->root_instruction()->operand(1);
  while (answer->opcode() == xla::HloOpcode::kReshape) answer = answer->operand(0);
  ASSERT_EQ(answer->opcode(), xla::HloOpcode::kConstant);
  EXPECT_EQ(answer->literal().Get<float>({}), 42);
}

TEST(LowerModuleTest, NamesVariablesWithNewValues) {
  Program program({TensorShape({2}), TensorShape({2})});
  const absl::Status status = program.Lower(Module(R"mlir(
  func.func @main(%arg0: tensor<2xf32>, %arg1: tensor<2xf32> {tf.aliasing_output = 0 : i64}) -> tensor<2xf32> {
    %0 = "tf.Sub"(%arg1, %arg0) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    func.return %0 : tensor<2xf32>
  })mlir"));
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(
      program.lowered.updated_arguments,
      (std::vector<std::pair<ArgumentNumber, OutputNumber>>{{ArgumentNumber(1), OutputNumber(0)}}));
  EXPECT_EQ(*program.Run({{1, 2}, {10, 20}}), (Values{9, 18}));
}

TEST(LowerModuleTest, CallsAndBranchesCompute) {
  // The sign of the sum selects the branch: twice the value, or the value minus one.
  const std::string module = Module(R"mlir(
  func.func @main(%arg0: tensor<2xf32>) -> tensor<2xf32> {
    %axis = "tf.Const"() {value = dense<0> : tensor<1xi32>} : () -> tensor<1xi32>
    %zero = "tf.Const"() {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
    %sum = "tf.Sum"(%arg0, %axis) {keep_dims = false} : (tensor<2xf32>, tensor<1xi32>) -> tensor<f32>
    %positive = "tf.Greater"(%sum, %zero) : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %0 = "tf.IfRegion"(%positive) ({
      %1 = "tf.PartitionedCall"(%arg0) {config = "", config_proto = "", executor_type = "", f = @twice} : (tensor<2xf32>) -> tensor<2xf32>
      "tf.Yield"(%1) : (tensor<2xf32>) -> ()
    }, {
      %one = "tf.Const"() {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
      %1 = "tf.Sub"(%arg0, %one) : (tensor<2xf32>, tensor<f32>) -> tensor<2xf32>
      "tf.Yield"(%1) : (tensor<2xf32>) -> ()
    }) {is_stateless = true} : (tensor<i1>) -> tensor<2xf32>
    func.return %0 : tensor<2xf32>
  }
  func.func private @twice(%arg0: tensor<2xf32>) -> tensor<2xf32> {
    %0 = "tf.AddV2"(%arg0, %arg0) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    func.return %0 : tensor<2xf32>
  })mlir");
  Program program({TensorShape({2})});
  const absl::Status status = program.Lower(module);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(*program.Run({{3, -1}}), (Values{6, -2}));
  EXPECT_EQ(*program.Run({{-3, 1}}), (Values{-4, 0}));
}

TEST(LowerModuleTest, LoopsCompute) {
  Program program({TensorShape({2})});
  const absl::Status status = program.Lower(Module(R"mlir(
  func.func @main(%arg0: tensor<2xf32>) -> tensor<2xf32> {
    %zero = "tf.Const"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
    %0:2 = "tf.WhileRegion"(%zero, %arg0) ({
    ^bb0(%i: tensor<i32>, %x: tensor<2xf32>):
      %five = "tf.Const"() {value = dense<5> : tensor<i32>} : () -> tensor<i32>
      %1 = "tf.Less"(%i, %five) : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "tf.Yield"(%1) : (tensor<i1>) -> ()
    }, {
    ^bb0(%i: tensor<i32>, %x: tensor<2xf32>):
      %one = "tf.Const"() {value = dense<1> : tensor<i32>} : () -> tensor<i32>
      %1 = "tf.AddV2"(%i, %one) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      %2 = "tf.AddV2"(%x, %x) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
      "tf.Yield"(%1, %2) : (tensor<i32>, tensor<2xf32>) -> ()
    }) {is_stateless = true} : (tensor<i32>, tensor<2xf32>) -> (tensor<i32>, tensor<2xf32>)
    func.return %0#1 : tensor<2xf32>
  })mlir"));
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(*program.Run({{1, -2}}), (Values{32, -64}));
}

// Two clusters, the second of which the bridge has split.
constexpr char kHostComputations[] = R"mlir(
  func.func @main(%arg0: tensor<2xf32>) -> tensor<2xf32> {
    %0 = "tf._XlaHostComputeMlir"(%arg0) <{host_mlir_module = "", recv_key = "r0", send_key = "s0"}> : (tensor<2xf32>) -> tensor<2xf32> loc("f@outside_compilation_cluster_a1")
    %1 = "tf._XlaHostComputeMlir"(%0) <{host_mlir_module = "", recv_key = "r1", send_key = "s1"}> : (tensor<2xf32>) -> tensor<2xf32> loc("g")
    %2 = "tf.AddV2"(%1, %0) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    func.return %2 : tensor<2xf32>
  })mlir";

TEST(LowerModuleTest, HostComputationsBecomeOurOps) {
  Program program({TensorShape({2})});
  program.metadata.set_num_replicas(3);
  seen->clear();
  const absl::Status status = program.Lower(Module(kHostComputations));
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(program.lowered.has_host_transfers);
  ASSERT_EQ(seen->size(), 2u);
  // In program order.
  EXPECT_EQ((*seen)[0].send_key, "s0");
  EXPECT_EQ((*seen)[1].send_key, "s1");
  EXPECT_EQ((*seen)[0].counted_as, "outside_compilation_cluster_a1");
  EXPECT_EQ((*seen)[1].counted_as, "");
  EXPECT_EQ((*seen)[0].program_replicas, 3);
  // The fake host negates its input.
  EXPECT_EQ(*program.Run({{1, 2}}), (Values{0, 0}));
}

TEST(LowerModuleTest, PlacedOpsBecomeOneProgram) {
  const std::string module = Module(R"mlir(
  func.func @main(%arg0: tensor<2xf32>, %arg1: tensor<2xf32>) -> tensor<2xf32> {
    %0 = "tf.XlaSharding"(%arg0) {_XlaSharding = "\08\01\1A\01\01\22\01\01", sharding = "\08\01\1A\01\01\22\01\01"} : (tensor<2xf32>) -> tensor<2xf32>
    %1 = "tf.AddV2"(%0, %arg1) {_XlaSharding = "\08\01\1A\01\01\22\01\00"} : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    func.return %1 : tensor<2xf32>
  })mlir");
  const auto shardings = [](const Program& program) {
    return program.Count(
        [](const xla::HloInstruction& instruction) { return instruction.has_sharding(); });
  };
  Program merged({TensorShape({2}), TensorShape({2})}, /*cores_per_replica=*/2);
  absl::Status status = merged.Lower(module);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(shardings(merged), 0);
  EXPECT_EQ(*merged.Run({{1, 2}, {10, 20}}), (Values{11, 22}));

  Program split({TensorShape({2}), TensorShape({2})}, /*cores_per_replica=*/2);
  split.metadata.set_use_spmd_for_xla_partitioning(true);
  status = split.Lower(module);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_GT(shardings(split), 0);
}

TEST(LowerModuleTest, SplitArgumentsAndResultsKeepTheirShardings) {
  Program program({TensorShape({4, 3}), TensorShape({3})}, /*cores_per_replica=*/2);
  program.metadata.set_use_spmd_for_xla_partitioning(true);
  const xla::OpSharding rows = xla::HloSharding::IotaTile({2, 1}).ToProto();
  *program.metadata.mutable_args(0)->mutable_sharding() = rows;
  *program.metadata.mutable_retvals(0)->mutable_sharding() = rows;
  const absl::Status status = program.Lower(Sum());
  ASSERT_TRUE(status.ok()) << status;
  const auto hlo = program.Hlo();
  ASSERT_TRUE(hlo.ok()) << hlo.status();
  const xla::HloComputation& entry = *(*hlo)->entry_computation();
  const xla::HloSharding expected = *xla::HloSharding::FromProto(rows);
  ASSERT_TRUE(entry.parameter_instruction(0)->has_sharding());
  EXPECT_EQ(entry.parameter_instruction(0)->sharding(), expected);
  EXPECT_TRUE(entry.parameter_instruction(1)->sharding().IsReplicated());
  ASSERT_TRUE(entry.root_instruction()->has_sharding());
  EXPECT_EQ(entry.root_instruction()->sharding().tuple_elements()[0], expected);
}

constexpr char kConvolution[] = R"mlir(
  func.func @main(%arg0: tensor<16x28x28x32xf32>, %arg1: tensor<3x3x32x64xf32>) -> tensor<16x28x28x64xf32> {
    %0 = "tf.Conv2D"(%arg0, %arg1) {data_format = "NHWC", dilations = [1, 1, 1, 1], explicit_paddings = [], padding = "SAME", strides = [1, 1, 1, 1], use_cudnn_on_gpu = true} : (tensor<16x28x28x32xf32>, tensor<3x3x32x64xf32>) -> tensor<16x28x28x64xf32>
    func.return %0 : tensor<16x28x28x64xf32>
  })mlir";

TEST(LowerModuleTest, ConvolutionsAreTensorFlowsWhereNobodySplitsThem) {
  const std::vector<TensorShape> shapes = {TensorShape({16, 28, 28, 32}),
                                           TensorShape({3, 3, 32, 64})};
  const auto kernel_calls = [](Program& program) {
    const absl::Status status = program.Lower(Module(kConvolution));
    EXPECT_TRUE(status.ok()) << status;
    return program.Count([](const xla::HloInstruction& instruction) {
      return instruction.IsCustomCall(kKernelTarget);
    });
  };
  Program plain(shapes);
  EXPECT_EQ(kernel_calls(plain), 1);
  Program switched_off(shapes);
  switched_off.lowered.options.tensorflow_kernels = false;
  EXPECT_EQ(kernel_calls(switched_off), 0);
  Program merged(shapes, /*cores_per_replica=*/2);
  EXPECT_EQ(kernel_calls(merged), 1);
  Program split(shapes, /*cores_per_replica=*/2);
  split.metadata.set_use_spmd_for_xla_partitioning(true);
  EXPECT_EQ(kernel_calls(split), 0);
}

TEST(LowerModuleTest, DynamicArgumentsHaveABoundAndOpsReadNoPadding) {
  Program program({TensorShape({4})});
  program.metadata.mutable_args(0)->add_is_bounded_dynamic_dim(true);
  const absl::Status status = program.Lower(Module(R"mlir(
  func.func @main(%arg0: tensor<?xf32>) -> tensor<?xf32> {
    %axis = "tf.Const"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
    %0 = "tf.Cumsum"(%arg0, %axis) {exclusive = false, reverse = true} : (tensor<?xf32>, tensor<i32>) -> tensor<?xf32>
    func.return %0 : tensor<?xf32>
  })mlir"));
  ASSERT_TRUE(status.ok()) << status;
  const auto hlo = program.Hlo();
  ASSERT_TRUE(hlo.ok()) << hlo.status();
  const xla::HloInstruction* argument = (*hlo)->entry_computation()->parameter_instruction(0);
  EXPECT_TRUE(argument->shape().is_dynamic_dimension(0));
  EXPECT_EQ(argument->shape().dimensions(0), 4);
  // The stock kernel would include the padding in the sum. Here a select masks it by position.
  EXPECT_EQ(program.Count([](const xla::HloInstruction& instruction) {
    return instruction.opcode() == xla::HloOpcode::kSelect;
  }),
            1);
}

TEST(LowerModuleTest, TakesParametersOnly) {
  for (const auto kind : {Metadata::Arg::VARIABLE, Metadata::Arg::GUARANTEED_CONSTANT}) {
    Program program({TensorShape({2, 3}), TensorShape({3})});
    program.metadata.mutable_args(1)->set_kind(kind);
    const absl::Status status = program.Lower(Sum());
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "Argument 1 ('argument1')")) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), Metadata::Arg::Kind_Name(kind))) << status;
  }
}

TEST(LowerModuleTest, AnOpThatXlaLacksIsAnErrorThatNamesIt) {
  Program program({TensorShape({2})});
  const absl::Status status = program.Lower(Module(R"mlir(
  func.func @main(%arg0: tensor<2xf32>) -> tensor<2xf32> {
    %0 = "tf.AsString"(%arg0) {fill = "", precision = -1 : i64, scientific = false, shortest = false, width = -1 : i64} : (tensor<2xf32>) -> tensor<2x!tf_type.string>
    %1 = "tf.StringToNumber"(%0) : (tensor<2x!tf_type.string>) -> tensor<2xf32>
    func.return %1 : tensor<2xf32>
  })mlir"));
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(absl::StrContains(status.message(), "AsString")) << status;
}

TEST(LowerModuleTest, ShapesThatDoNotFitAreTheOpsError) {
  Program program({TensorShape({2, 3}), TensorShape({4})});
  const absl::Status status = program.Lower(Module(R"mlir(
  func.func @main(%arg0: tensor<?x?xf32>, %arg1: tensor<?xf32>) -> tensor<?x?xf32> {
    %0 = "tf.AddV2"(%arg0, %arg1) : (tensor<?x?xf32>, tensor<?xf32>) -> tensor<?x?xf32>
    func.return %0 : tensor<?x?xf32>
  })mlir"));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

TEST(LowerModuleTest, TextThatIsNoModuleIsAnError) {
  Program program({TensorShape({2, 3}), TensorShape({3})});
  EXPECT_FALSE(program.Lower("").ok());
  EXPECT_FALSE(program.Lower("module {").ok());
  EXPECT_FALSE(program.Lower(Module("  func.func @main() { \"tf.NoSuchOp\" }")).ok());
}

TEST(LowerModuleTest, EmbeddingsNeedAReplicaOnOneCore) {
  const std::string module = Module(R"mlir(
  func.func @main() -> tensor<2x4xf32> {
    %0 = "tf.RecvTPUEmbeddingActivations"() {config = ""} : () -> tensor<2x4xf32>
    func.return %0 : tensor<2x4xf32>
  })mlir");
  Program program({}, /*cores_per_replica=*/2);
  const absl::Status status = program.Lower(module);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "TPU embeddings")) << status;
  EXPECT_TRUE(program.lowered.takes.embedding);
}

TEST(QueuesOfTest, AreReadOffTheTextOfTheModule) {
  EXPECT_FALSE(QueuesOf(Sum()).any());
  EXPECT_TRUE(QueuesOf("%0 = \"tf.InfeedDequeueTuple\"() : () -> tensor<f32>").infeed);
  EXPECT_FALSE(QueuesOf("%0 = \"tf.InfeedDequeueTuple\"() : () -> tensor<f32>").embedding);
  EXPECT_TRUE(QueuesOf("\"tf.XlaRecvTPUEmbeddingActivations\"()").embedding);
  EXPECT_TRUE(QueuesOf("\"tf.XlaSendTPUEmbeddingGradients\"(%0)").embedding);
  EXPECT_FALSE(QueuesOf("\"tf.OutfeedEnqueue\"(%0)").any());
}

TEST(PartitioningOfTest, SeveralCoresAreSplitOrMerged) {
  Metadata metadata;
  EXPECT_EQ(PartitioningOf(metadata), Partitioning::kNone);
  metadata.set_num_cores_per_replica(1);
  metadata.set_use_spmd_for_xla_partitioning(true);
  EXPECT_EQ(PartitioningOf(metadata), Partitioning::kNone);
  metadata.set_num_cores_per_replica(2);
  EXPECT_EQ(PartitioningOf(metadata), Partitioning::kSpmd);
  metadata.set_use_spmd_for_xla_partitioning(false);
  EXPECT_EQ(PartitioningOf(metadata), Partitioning::kMerged);
}

}  // namespace
}  // namespace tf_tpu_ext
