#include "cc/kernels/jit_with_host.h"

#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "cc/kernels/core_function.h"
#include "cc/ops/op_names.h"
#include "cc/program/traced_options.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/platform/errors.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::FunctionDef;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::NameAttrList;
using tensorflow::NodeDef;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

constexpr char kCluster[] = "cluster";
constexpr char kPrefix[] = "tpu_computation_";
constexpr char kMetadata[] = "tpu_computation_metadata";
constexpr int kCore = 0;

// Adds the mark by which the bridge recognizes the ops of a computation.
void MarkReplicated(NodeDef* node) { (*node->mutable_attr())[kTpuReplicate].set_s(kCluster); }

NodeDef* AddNode(const std::string& name, const std::string& op, FunctionDef* function) {
  NodeDef* node = function->add_node_def();
  node->set_name(name);
  node->set_op(op);
  return node;
}

class JitWithHostOp : public AsyncOpKernel {
 public:
  JitWithHostOp(OpKernelConstruction* construction, const NameAttrList& function)
      : AsyncOpKernel(construction),
        function_(*this, function, NameFor(function.name()),
                  [name = function.name()](const std::vector<Tensor>& arguments,
                                           FunctionLibraryDefinition* library) {
                    return Define(name, arguments, library);
                  }) {}

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    std::vector<Tensor> arguments;
    arguments.reserve(context->num_inputs());
    for (int i = 0; i < context->num_inputs(); ++i) arguments.push_back(context->input(i));
    function_.Call(context, arguments, kCore, std::move(done));
  }

 private:
  static std::string NameFor(const std::string& function) {
    return absl::StrCat(function, "_as_tpu_computation");
  }

  static absl::Status Define(const std::string& function, const std::vector<Tensor>& arguments,
                             FunctionLibraryDefinition* library) {
    const std::string name = NameFor(function);
    TF_RETURN_IF_ERROR(AddAsTpuComputation(function, name, library));
    // What the host returns needs a static shape, which often follows from those of the arguments.
    const auto record = library->FindRecord(name);
    FunctionDef definition = record->fdef();
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].dtype() == tensorflow::DT_RESOURCE) continue;
      auto& attributes = *(*definition.mutable_arg_attr())[static_cast<uint32_t>(i)].mutable_attr();
      tensorflow::AttrValue shapes;
      arguments[i].shape().AsProto(shapes.mutable_list()->add_shape());
      attributes["_output_shapes"] = std::move(shapes);
    }
    return library->ReplaceFunction(name, definition, record->stack_traces());
  }

  CoreFunction function_;
};

}  // namespace

absl::Status AddAsTpuComputation(const std::string& function, const std::string& name,
                                 FunctionLibraryDefinition* library) {
  const auto record = library->FindRecord(function);
  if (record == nullptr) {
    return absl::NotFoundError(absl::StrCat("There is no function ", function, "."));
  }
  FunctionDef computation = record->fdef();
  computation.mutable_signature()->set_name(name);
  // It is compiled as a TPU computation, and must not be compiled again on its own.
  computation.mutable_attr()->erase(kMustCompile);
  for (NodeDef& node : *computation.mutable_node_def()) MarkReplicated(&node);

  NodeDef* metadata = AddNode(kMetadata, "TPUReplicateMetadata", &computation);
  MarkReplicated(metadata);
  tensorflow::AddNodeAttr("num_replicas", 1, metadata);
  tensorflow::AddNodeAttr(kCompileOptions, CompileOptionsOf(record->fdef()), metadata);
  // Arguments enter the computation, and results leave it, through ops made for that.
  absl::flat_hash_map<std::string, std::string> inputs;
  for (const auto& argument : computation.signature().input_arg()) {
    const std::string node_name = absl::StrCat(kPrefix, "input_", inputs.size());
    inputs[argument.name()] = absl::StrCat(node_name, ":output:0");
    NodeDef* input = AddNode(node_name, "TPUReplicatedInput", &computation);
    input->add_input(argument.name());
    tensorflow::AddNodeAttr("N", 1, input);
    tensorflow::AddNodeAttr("T", argument.type(), input);
  }
  for (NodeDef& node : *computation.mutable_node_def()) {
    if (node.op() == "TPUReplicatedInput") continue;
    for (std::string& input : *node.mutable_input()) {
      if (auto entered = inputs.find(input); entered != inputs.end()) input = entered->second;
    }
  }
  int results = 0;
  for (const auto& result : computation.signature().output_arg()) {
    std::string& value = (*computation.mutable_ret())[result.name()];
    if (auto entered = inputs.find(value); entered != inputs.end()) value = entered->second;
    const std::string node_name = absl::StrCat(kPrefix, "output_", results++);
    // Only the output of an op of the computation can be its result.
    NodeDef* made = AddNode(absl::StrCat(node_name, "_value"), "Identity", &computation);
    MarkReplicated(made);
    made->add_input(value);
    tensorflow::AddNodeAttr("T", result.type(), made);
    NodeDef* output = AddNode(node_name, "TPUReplicatedOutput", &computation);
    output->add_input(absl::StrCat(made->name(), ":output:0"));
    tensorflow::AddNodeAttr("num_replicas", 1, output);
    tensorflow::AddNodeAttr("T", result.type(), output);
    value = absl::StrCat(node_name, ":outputs:0");
  }
  return library->AddFunctionDef(computation, record->stack_traces());
}

std::unique_ptr<tensorflow::OpKernel> MakeJitWithHostKernel(OpKernelConstruction* construction,
                                                            const NameAttrList& function) {
  return std::make_unique<JitWithHostOp>(construction, function);
}

}  // namespace tf_tpu_ext
