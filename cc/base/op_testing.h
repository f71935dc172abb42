// For tests: one op, compiled by tf2xla and run by XLA.
#ifndef TF_TPU_EXT_CC_BASE_OP_TESTING_H_
#define TF_TPU_EXT_CC_BASE_OP_TESTING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cc/base/tensor_copy.h"
#include "cc/base/tensor_testing.h"
#include "tensorflow/compiler/tf2xla/literal_util.h"
#include "tensorflow/compiler/tf2xla/xla_compiler.h"
#include "tensorflow/core/common_runtime/function.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_def_builder.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorflow/core/public/version.h"
#include "xla/client/client.h"
#include "xla/client/client_library.h"
#include "xla/client/local_client.h"
#include "xla/execution_options_util.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/hlo/builder/xla_computation.h"
#include "xla/literal.h"
#include "xla/llvm_emitters.h"
#include "xla/shape.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {

// Add the inputs in the op's order, then call Compile or Run.
class OpTester {
 public:
  explicit OpTester(const std::string& op)
      : library_(tensorflow::OpRegistry::Global(), tensorflow::FunctionDefLibrary()),
        graph_(std::make_unique<tensorflow::Graph>(tensorflow::OpRegistry::Global())),
        builder_("the_op", op) {}

  // An input whose value is known when the op is compiled.
  OpTester& Constant(const tensorflow::Tensor& value) {
    inputs_.push_back({{AddConstant(value)}, /*is_list=*/false});
    return *this;
  }
  OpTester& Input(const tensorflow::Tensor& value) {
    inputs_.push_back({{AddArgument(value)}, /*is_list=*/false});
    return *this;
  }
  OpTester& InputList(const std::vector<tensorflow::Tensor>& values) {
    TestInput& input = inputs_.emplace_back();
    for (const tensorflow::Tensor& value : values) input.nodes.push_back(AddArgument(value));
    input.is_list = true;
    return *this;
  }
  // An input made by another op, which has no inputs and one attribute.
  template <typename T>
  OpTester& InputFrom(const std::string& op, const std::string& attribute, const T& value) {
    tensorflow::NodeDefBuilder builder(graph_->NewName(op), op);
    builder.Attr(attribute, value);
    inputs_.push_back({{*Finish(&builder, {})}, /*is_list=*/false});
    return *this;
  }
  // An input of which only the first `size` elements of a dimension are real.
  OpTester& DynamicInput(const tensorflow::Tensor& value, int dimension, int32_t size) {
    inputs_.push_back({{SetSize(AddArgument(value), dimension, size)}, /*is_list=*/false});
    return *this;
  }
  // An input that is the shape of a tensor with a dimension of dynamic size.
  OpTester& DynamicShape(const tensorflow::Tensor& like, int dimension, int32_t size) {
    inputs_.push_back(
        {{Add("Shape", {SetSize(AddArgument(like), dimension, size)})}, /*is_list=*/false});
    return *this;
  }
  template <typename T>
  OpTester& Attr(const std::string& name, const T& value) {
    builder_.Attr(name, value);
    return *this;
  }

  // The compiled op. Its results are the op's first output, if it has any, and that output's sizes.
  absl::StatusOr<std::shared_ptr<tensorflow::XlaCompilationResult>> Compile() {
    Nodes inputs;
    for (const TestInput& input : inputs_) {
      std::vector<tensorflow::NodeDefBuilder::NodeOut> values;
      for (tensorflow::Node* node : input.nodes) {
        values.emplace_back(node->name(), 0, node->output_type(0));
        inputs.push_back(node);
      }
      if (input.is_list) {
        builder_.Input(values);
      } else {
        builder_.Input(values[0]);
      }
    }
    TF_ASSIGN_OR_RETURN(tensorflow::Node * op, Finish(&builder_, inputs));
    if (op->num_outputs() > 0) {
      AddResult(op, 0);
      AddResult(Add("Shape", {op}), 1);
    }
    graph_->AddControlEdge(op, graph_->sink_node());
    tensorflow::XlaCompiler::Options options;
    options.device_type = tensorflow::DeviceType("XLA_CPU_JIT");
    options.flib_def = &library_;
    options.graph_def_version = TF_GRAPH_DEF_VERSION;
    tensorflow::XlaCompiler compiler(options);
    auto result = std::make_shared<tensorflow::XlaCompilationResult>();
    TF_RETURN_IF_ERROR(compiler.CompileGraph(tensorflow::XlaCompiler::CompileOptions(), "test",
                                             std::move(graph_), arguments_, result.get()));
    return result;
  }

  // The op's first output, cut to its real size.
  absl::StatusOr<tensorflow::Tensor> Run() {
    TF_ASSIGN_OR_RETURN(const auto compiled, Compile());
    TF_ASSIGN_OR_RETURN(const xla::XlaComputation program, WithSizes(*compiled->computation));
    xla::Client* client = xla::ClientLibrary::LocalClientOrDie();
    std::vector<std::unique_ptr<xla::GlobalData>> data;
    std::vector<xla::GlobalData*> arguments;
    for (int number : compiled->input_mapping) {
      xla::BorrowingLiteral literal;
      TF_RETURN_IF_ERROR(tensorflow::HostTensorToBorrowingLiteral(values_[number], &literal));
      TF_ASSIGN_OR_RETURN(auto sent, client->TransferToServer(literal));
      arguments.push_back(sent.get());
      data.push_back(std::move(sent));
    }
    xla::ExecutionOptions options = xla::CreateDefaultExecutionOptions();
    UseLlvmEmitters(options.mutable_debug_options());
    TF_ASSIGN_OR_RETURN(xla::Literal results,
                        client->ExecuteAndTransfer(program, arguments, &options));
    std::vector<xla::Literal> parts = results.DecomposeTuple();
    tensorflow::Tensor padded;
    TF_RETURN_IF_ERROR(
        tensorflow::LiteralToHostTensor(parts[0], compiled->outputs[0].type, &padded));
    tensorflow::TensorShape shape;
    for (size_t d = 1; d < parts.size(); ++d) shape.AddDim(parts[d].Get<int32_t>({}));
    tensorflow::Tensor cut(padded.dtype(), shape);
    CopyLeadingBlock(padded.data(), padded.shape(), &cut);
    return cut;
  }

 private:
  using Nodes = std::vector<tensorflow::Node*>;

  struct TestInput {
    Nodes nodes;
    bool is_list = false;
  };

  // The program, returning its result with padding and the real sizes of its dimensions.
  static absl::StatusOr<xla::XlaComputation> WithSizes(const xla::XlaComputation& program) {
    TF_ASSIGN_OR_RETURN(const xla::ProgramShape shape, program.GetProgramShape());
    xla::XlaBuilder builder("with_sizes");
    std::vector<xla::XlaOp> parameters;
    for (int i = 0; i < static_cast<int>(shape.parameters().size()); ++i) {
      parameters.push_back(
          xla::Parameter(&builder, i, shape.parameters(i), absl::StrCat("parameter", i)));
    }
    const xla::XlaOp result = xla::GetTupleElement(xla::Call(&builder, program, parameters), 0);
    TF_ASSIGN_OR_RETURN(const xla::Shape result_shape, builder.GetShape(result));
    std::vector<xla::XlaOp> results = {result};
    for (size_t d = 0; d < result_shape.dimensions().size(); ++d) {
      results.push_back(xla::GetDimensionSize(result, d));
      if (result_shape.is_dynamic_dimension(d)) {
        results[0] = xla::RemoveDynamicDimension(results[0], d);
      }
    }
    xla::Tuple(&builder, results);
    return builder.Build();
  }

  absl::StatusOr<tensorflow::Node*> Finish(tensorflow::NodeDefBuilder* builder,
                                           const Nodes& inputs) {
    tensorflow::NodeDef definition;
    TF_RETURN_IF_ERROR(builder->Finalize(&definition));
    TF_ASSIGN_OR_RETURN(tensorflow::Node * node, graph_->AddNode(definition));
    if (inputs.empty()) graph_->AddControlEdge(graph_->source_node(), node);
    for (size_t i = 0; i < inputs.size(); ++i) {
      graph_->AddEdge(inputs[i], 0, node, static_cast<int>(i));
    }
    return node;
  }

  // A node with no attributes except its types.
  tensorflow::Node* Add(const std::string& op, const Nodes& inputs) {
    tensorflow::NodeDefBuilder builder(graph_->NewName(op), op);
    for (tensorflow::Node* input : inputs) builder.Input(input->name(), 0, input->output_type(0));
    return *Finish(&builder, inputs);
  }

  tensorflow::Node* AddConstant(const tensorflow::Tensor& value) {
    tensorflow::NodeDefBuilder builder(graph_->NewName("constant"), "Const");
    builder.Attr("dtype", value.dtype()).Attr("value", value);
    return *Finish(&builder, {});
  }

  tensorflow::Node* AddArgument(const tensorflow::Tensor& value) {
    tensorflow::XlaArgument& argument = arguments_.emplace_back();
    argument.kind = tensorflow::XlaArgument::kParameter;
    argument.type = value.dtype();
    argument.shape = value.shape();
    const int number = static_cast<int>(values_.size());
    values_.push_back(value);
    tensorflow::NodeDefBuilder builder(graph_->NewName("argument"), "_Arg");
    builder.Attr("T", value.dtype()).Attr("index", number);
    return *Finish(&builder, {});
  }

  tensorflow::Node* SetSize(tensorflow::Node* value, int dimension, int32_t size) {
    return Add("XlaSetDynamicDimensionSize", {value, AddConstant(MakeScalar<int32_t>(dimension)),
                                              AddArgument(MakeScalar<int32_t>(size))});
  }

  void AddResult(tensorflow::Node* value, int number) {
    tensorflow::NodeDefBuilder builder(absl::StrCat("result", number), "_Retval");
    builder.Input(value->name(), 0, value->output_type(0)).Attr("index", number);
    tensorflow::Node* result = *Finish(&builder, {value});
    graph_->AddControlEdge(result, graph_->sink_node());
  }

  tensorflow::FunctionLibraryDefinition library_;
  std::unique_ptr<tensorflow::Graph> graph_;
  tensorflow::NodeDefBuilder builder_;
  std::vector<TestInput> inputs_;
  std::vector<tensorflow::XlaArgument> arguments_;
  std::vector<tensorflow::Tensor> values_;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_BASE_OP_TESTING_H_
