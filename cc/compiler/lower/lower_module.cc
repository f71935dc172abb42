#include "cc/compiler/lower/lower_module.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cc/abi/tensorflow/mlir.h"
#include "cc/compiler/lower/cluster_marks.h"
#include "cc/compiler/lower/host_transfer_order.h"
#include "cc/compiler/lower/module_calls.h"
#include "cc/compiler/lower/rewrite_functions.h"
#include "cc/compiler/lower/updated_arguments.h"
#include "cc/compiler/overrides/checked_ops.h"
#include "cc/compiler/overrides/dynamic_ops.h"
#include "cc/compiler/overrides/tensorflow_kernels.h"
#include "cc/program/lowering.h"
#include "llvm/ADT/StringRef.h"
#include "mlir/IR/BuiltinOps.h"
#include "tensorflow/c/tf_status.h"
#include "tensorflow/c/tf_status_helper.h"
#include "tensorflow/compiler/mlir/tensorflow/utils/deserialize_mlir_module_utils.h"
#include "tensorflow/compiler/mlir/tf2xla/api/v2/tf_executor_to_graph.h"
#include "tensorflow/compiler/tf2xla/type_util.h"
#include "tensorflow/compiler/tf2xla/xla_compiler.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/common_runtime/function_body.h"
#include "tensorflow/core/common_runtime/graph_constructor.h"
#include "tensorflow/core/common_runtime/graph_optimizer.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/graph/graph.h"
#include "xla/shape_util.h"
#include "xla/tsl/platform/errors.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::FunctionLibraryDefinition;
using tensorflow::Graph;
using tensorflow::Node;
using tensorflow::TensorShape;
using Metadata = tensorflow::tpu::TPUCompileMetadataProto;

constexpr char kEntryFunction[] = "main";
// Inlines calls, turns regions into functions, and infers shapes, so that XlaCompiler accepts the
// graph.
constexpr char kPassPipeline[] =
    "builtin.module(prepare-tpu-computation-for-tf-export,"
    "tf-region-control-flow-to-functional,tf-shape-inference)";

absl::Status ExportFunctions(const std::string& module, FunctionLibraryDefinition* library,
                             LoweredModule* lowered) {
  TF_Status* c_status = TF_NewStatus();
  std::string prepared = tensorflow::ExperimentalRunPassPipeline(
      module, kPassPipeline, /*show_debug_info=*/true, c_status);
  const absl::Status status = tensorflow::StatusFromTF_Status(c_status);
  TF_DeleteStatus(c_status);
  TF_RETURN_IF_ERROR(status);
  lowered->lines = OpLines::OfModule(&prepared);

  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  tensorflow::tf2xla::v2::LoadImporterDialects(context);
  mlir::OwningOpRef<mlir::ModuleOp> op;
  TF_RETURN_IF_ERROR(tensorflow::DeserializeMlirModule(prepared, &context, &op));
  TF_RETURN_IF_ERROR(ExportFromTensorflowDialectToExecutor(op.get(), ""));
  tensorflow::GraphExportConfig config;
  config.export_entry_func_to_flib = true;
  absl::flat_hash_set<Node*> control_returns;
  return tensorflow::tf2xla::v2::ConvertTfExecutorToGraph(op.get(), config, nullptr, library,
                                                          &control_returns);
}

// Arguments and results lose their shardings in MLIR, but the metadata still has them.
void RestoreShardings(const Metadata& metadata, Graph* graph) {
  for (Node* node : graph->op_nodes()) {
    if (!node->IsArg() && !node->IsRetval()) continue;
    int index = -1;
    if (!tensorflow::GetNodeAttr(node->attrs(), "index", &index).ok()) continue;
    if (node->IsArg() && index < metadata.args_size()) {
      node->AddAttr(kShardingAttribute, metadata.args(index).sharding().SerializeAsString());
    } else if (node->IsRetval() && index < metadata.retvals_size()) {
      node->AddAttr(kShardingAttribute, metadata.retvals(index).sharding().SerializeAsString());
    }
  }
}

// Whether the node may be constant-folded. Ops whose value differs between devices, or that only
// the compiler may evaluate, may not.
bool MayFold(const Node* node) {
  static const auto* const kept =
      new absl::flat_hash_set<std::string>({"StatelessRandomUniform", "StatelessRandomNormal",
                                            "StatelessTruncatedNormal", "Shape", "ShapeN", "Size"});
  if (kept->contains(node->type_string())) return false;
  return std::none_of(node->output_types().begin(), node->output_types().end(),
                      [](tensorflow::DataType type) { return type == tensorflow::DT_VARIANT; });
}

void InlineAndFold(tensorflow::FunctionLibraryRuntime* runtime, std::unique_ptr<Graph>* graph) {
  tensorflow::OptimizerOptions options;
  options.set_opt_level(tensorflow::OptimizerOptions::L0);
  options.set_do_function_inlining(true);
  options.set_do_constant_folding(true);
  tensorflow::GraphOptimizer optimizer(options);
  tensorflow::GraphOptimizer::Options graph_options;
  graph_options.inline_multi_device_functions = true;
  graph_options.inline_impl_selection_group_functions = true;
  graph_options.inline_with_single_device_body_placer = true;
  graph_options.cf_consider_fn = MayFold;
  optimizer.Optimize(runtime, runtime->env(), runtime->device(), graph, graph_options);
}

absl::Status DescribeArguments(const Metadata& metadata, const std::vector<TensorShape>& shapes,
                               std::vector<tensorflow::XlaCompiler::Argument>* arguments) {
  arguments->resize(metadata.args_size());
  for (int i = 0; i < metadata.args_size(); ++i) {
    const Metadata::Arg& described = metadata.args(i);
    tensorflow::XlaCompiler::Argument& argument = (*arguments)[i];
    argument.type = described.dtype();
    argument.name = described.name();
    argument.shape = shapes[i];
    if (described.kind() != Metadata::Arg::PARAMETER) {
      return absl::UnimplementedError(absl::StrCat(
          "Argument ", i, " ('", described.name(), "') of the TPU computation is a ",
          Metadata::Arg::Kind_Name(described.kind()),
          "; a virtual TPU takes parameters only. Read the variable before tpu.replicate and pass "
          "its value, or remove tf.guarantee_const."));
    }
    argument.kind = tensorflow::XlaCompiler::Argument::kParameter;
    const auto& dynamic = described.is_bounded_dynamic_dim();
    if (std::find(dynamic.begin(), dynamic.end(), true) != dynamic.end()) {
      xla::PrimitiveType type;
      TF_RETURN_IF_ERROR(tensorflow::DataTypeToPrimitiveType(described.dtype(), &type));
      if (dynamic.size() != shapes[i].dims()) {
        return absl::InvalidArgumentError(
            absl::StrCat("The metadata of the TPU computation says of ", dynamic.size(),
                         " dimensions of argument ", i, " whether they are dynamic; it has ",
                         shapes[i].dims(), ". The graph is damaged."));
      }
      TF_ASSIGN_OR_RETURN(argument.shape, xla::ShapeUtil::MakeValidatedShape(
                                              type, shapes[i].dim_sizes(),
                                              std::vector<bool>(dynamic.begin(), dynamic.end())));
    }
  }
  return absl::OkStatus();
}

// Rewrites the functions of the bridge's module so that tf2xla can compile them.
absl::Status RewriteFunctions(const std::string& module, const Metadata& metadata,
                              LoweredModule* lowered, FunctionLibraryDefinition* library) {
  const Partitioning partitioning = PartitioningOf(metadata);
  const bool for_target = lowered->for_target;
  if (partitioning == Partitioning::kMerged && !for_target) {
    TF_RETURN_IF_ERROR(RemovePlacement(library));
  }
  // This also renames the bridge's host computations to our op, which the next two look for.
  TF_RETURN_IF_ERROR(OrderHostTransfers(kEntryFunction, library, &lowered->has_host_transfers));
  TF_RETURN_IF_ERROR(CountClusters(ClusterMarks(module), library));
  TF_RETURN_IF_ERROR(TakeHostFunctions(library, &lowered->host_functions));
  // The rest is specific to us: a TPU uses TensorFlow's own kernels.
  if (for_target) return absl::OkStatus();
  TF_RETURN_IF_ERROR(ChooseTpuPlatforms(library));
  TF_RETURN_IF_ERROR(UseCheckedOps(library));
  // Both this and UseTensorFlowKernels replace average pools. This comes first, because the other
  // may fall back to the stock kernel, which reads padding if sizes are dynamic.
  TF_RETURN_IF_ERROR(ReplaceOpsOfDynamicSize(metadata, library));
  // Only XLA can split an op over cores.
  if (lowered->options.tensorflow_kernels && partitioning != Partitioning::kSpmd) {
    TF_RETURN_IF_ERROR(UseTensorFlowKernels(library));
  }
  return absl::OkStatus();
}

// Checks the counts here, because neither the compiler nor the runtime compares them again.
absl::Status CheckDescribes(const Metadata& metadata, const tensorflow::FunctionBody& function) {
  const auto number_differs = [](const char* what, int in_module, int in_metadata) {
    return absl::InvalidArgumentError(
        absl::StrCat("The module of the TPU computation has ", in_module, " ", what,
                     "; its metadata describes ", in_metadata, ". The graph is damaged."));
  };
  const int arguments = static_cast<int>(function.arg_types.size());
  if (arguments != metadata.args_size()) {
    return number_differs("arguments", arguments, metadata.args_size());
  }
  const int results = static_cast<int>(function.ret_types.size());
  if (results != metadata.retvals_size()) {
    return number_differs("results", results, metadata.retvals_size());
  }
  for (int i = 0; i < arguments; ++i) {
    if (function.arg_types[i] == metadata.args(i).dtype()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("Argument ", i, " of the TPU computation is ",
                     tensorflow::DataTypeString(function.arg_types[i]), " in its module and ",
                     tensorflow::DataTypeString(metadata.args(i).dtype()),
                     " in its metadata. The graph is damaged."));
  }
  return absl::OkStatus();
}

// Creates the entry function's graph, ready to be compiled. Names the arguments after its nodes.
absl::Status MakeGraph(const Metadata& metadata, tensorflow::FunctionLibraryRuntime* runtime,
                       std::vector<tensorflow::XlaCompiler::Argument>* arguments,
                       std::unique_ptr<Graph>* graph) {
  tensorflow::FunctionLibraryRuntime::Handle handle;
  TF_RETURN_IF_ERROR(runtime->Instantiate(kEntryFunction, tensorflow::AttrSlice(), &handle));
  const tensorflow::FunctionBody* body = runtime->GetFunctionBody(handle);
  TF_RETURN_IF_ERROR(CheckDescribes(metadata, *body));
  *graph = std::make_unique<Graph>(runtime->GetFunctionLibraryDefinition());
  tensorflow::CopyGraph(*body->graph, graph->get());
  for (size_t i = 0; i < body->arg_nodes.size(); ++i) {
    (*arguments)[i].node_name = body->arg_nodes[i]->name();
  }
  if (PartitioningOf(metadata) == Partitioning::kSpmd) RestoreShardings(metadata, graph->get());
  InlineAndFold(runtime, graph);
  return absl::OkStatus();
}

absl::Status CompileFunctions(const Metadata& metadata, const std::vector<TensorShape>& shapes,
                              FunctionLibraryDefinition* library, LoweredModule* lowered) {
  std::vector<tensorflow::XlaCompiler::Argument> arguments;
  TF_RETURN_IF_ERROR(DescribeArguments(metadata, shapes, &arguments));

  tensorflow::XlaOpRegistry::RegisterCompilationKernels();
  tensorflow::XlaCompiler::Options options;
  options.device_type =
      tensorflow::DeviceType(lowered->for_target ? kTargetCompilationDevice : kCompilationDevice);
  options.flib_def = library;
  options.allow_cpu_custom_calls = true;
  options.detailed_logging = false;
  std::function<absl::Status(tensorflow::ResourceMgr*)> tell =
      [&metadata, for_target = lowered->for_target](tensorflow::ResourceMgr* manager) {
        return SetLowering({std::max(1, metadata.num_replicas()), for_target,
                            std::max(1, metadata.num_cores_per_replica())},
                           manager);
      };
  options.populate_resource_manager = &tell;
  tensorflow::XlaCompiler compiler(options);

  std::unique_ptr<Graph> graph;
  TF_RETURN_IF_ERROR(MakeGraph(metadata, compiler.flib_runtime(), &arguments, &graph));
  tensorflow::XlaCompiler::CompileOptions compile_options;
  compile_options.use_tuple_arg = false;
  compile_options.always_return_tuple = true;
  compile_options.is_entry_computation = true;
  return compiler.CompileGraph(compile_options, kEntryFunction, std::move(graph), arguments,
                               &lowered->result);
}

}  // namespace

Partitioning PartitioningOf(const Metadata& metadata) {
  if (metadata.num_cores_per_replica() <= 1) return Partitioning::kNone;
  return metadata.use_spmd_for_xla_partitioning() ? Partitioning::kSpmd : Partitioning::kMerged;
}

TakenQueues QueuesOf(const std::string& module) {
  TakenQueues queues;
  queues.infeed = absl::StrContains(module, "\"tf.InfeedDequeue");
  queues.embedding = absl::StrContains(module, "TPUEmbeddingActivations\"") ||
                     absl::StrContains(module, "\"tf.XlaSendTPUEmbeddingGradients");
  return queues;
}

absl::Status LowerModule(const std::string& module, const Metadata& metadata,
                         const std::vector<TensorShape>& argument_shapes, LoweredModule* lowered) {
  lowered->takes = QueuesOf(module);
  lowered->updated_arguments = UpdatedArguments(module);
  if (lowered->takes.embedding && PartitioningOf(metadata) == Partitioning::kMerged) {
    return absl::UnimplementedError(
        "A TPU computation whose ops are placed on the cores of a replica one by one can't use "
        "TPU embeddings. Give the replica one core, or use XLAOptions("
        "use_spmd_for_xla_partitioning=True) without tpu.core().");
  }
  TF_RETURN_IF_ERROR(CheckNoRecursion(module));
  for (const auto& [argument, output] : lowered->updated_arguments) {
    if (argument.value() >= metadata.args_size() || output.value() >= metadata.retvals_size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "The module of the TPU computation updates argument ", argument, " by result ", output,
          "; its metadata describes ", metadata.args_size(), " arguments and ",
          metadata.retvals_size(), " results. The graph is damaged."));
    }
  }
  FunctionLibraryDefinition library(tensorflow::OpRegistry::Global(),
                                    tensorflow::FunctionDefLibrary());
  TF_RETURN_IF_ERROR(ExportFunctions(module, &library, lowered));
  TF_RETURN_IF_ERROR(RewriteFunctions(module, metadata, lowered, &library));
  return CompileFunctions(metadata, argument_shapes, &library, lowered);
}

}  // namespace tf_tpu_ext
