#include "cc/compiler/lower/lower_module.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cc/abi/tensorflow/mlir.h"
#include "cc/compiler/lower/cluster_marks.h"
#include "cc/compiler/lower/host_transfer_order.h"
#include "cc/compiler/lower/program_replicas.h"
#include "cc/compiler/lower/updated_arguments.h"
#include "cc/compiler/overrides/dynamic_ops.h"
#include "cc/compiler/overrides/tensorflow_kernels.h"
#include "cc/ops/op_names.h"
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

namespace tf_tpu_ext {
namespace {

using tensorflow::FunctionDef;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::Graph;
using tensorflow::Node;
using tensorflow::TensorShape;
using tensorflow::XlaCompiler;
using Metadata = tensorflow::tpu::TPUCompileMetadataProto;

constexpr char kEntryFunction[] = "main";
constexpr char kShardingAttribute[] = "_XlaSharding";
// Calls are inlined, regions become functions, and shapes are filled in, so that the graph is one
// that XlaCompiler takes.
constexpr char kPassPipeline[] =
    "builtin.module(prepare-tpu-computation-for-tf-export,"
    "tf-region-control-flow-to-functional,tf-shape-inference)";

absl::Status ExportFunctions(const std::string& module, FunctionLibraryDefinition* library) {
  TF_Status* c_status = TF_NewStatus();
  const std::string prepared = tensorflow::ExperimentalRunPassPipeline(
      module, kPassPipeline, /*show_debug_info=*/true, c_status);
  absl::Status status = tensorflow::StatusFromTF_Status(c_status);
  TF_DeleteStatus(c_status);
  if (!status.ok()) return status;

  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  tensorflow::tf2xla::v2::LoadImporterDialects(context);
  mlir::OwningOpRef<mlir::ModuleOp> op;
  status = tensorflow::DeserializeMlirModule(prepared, &context, &op);
  if (!status.ok()) return status;
  status = ExportFromTensorflowDialectToExecutor(op.get(), "");
  if (!status.ok()) return status;
  tensorflow::GraphExportConfig config;
  config.export_entry_func_to_flib = true;
  absl::flat_hash_set<Node*> control_returns;
  return tensorflow::tf2xla::v2::ConvertTfExecutorToGraph(op.get(), config, nullptr, library,
                                                          &control_returns);
}

// Takes all traces of placement out of the functions, so that the whole replica becomes one
// program.
absl::Status RemovePlacement(FunctionLibraryDefinition* library) {
  for (const std::string& name : library->ListFunctionNames()) {
    FunctionDef function = *library->Find(name);
    for (tensorflow::NodeDef& node : *function.mutable_node_def()) {
      node.clear_device();
      node.mutable_attr()->erase(kShardingAttribute);
      node.mutable_attr()->erase("_XlaShardingV2");
      if (node.op() == "XlaSharding") {
        const tensorflow::AttrValue type = node.attr().at("T");
        node.set_op("Identity");
        node.mutable_attr()->clear();
        (*node.mutable_attr())["T"] = type;
      }
    }
    if (absl::Status status = library->ReplaceFunction(name, function); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// Arguments and results lose their shardings on the way through MLIR; the metadata kept them.
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

// Ops whose value is not the same on every device, or that only the compiler may evaluate.
bool MayFold(const Node* node) {
  static const auto* const kept =
      new absl::flat_hash_set<std::string>({"StatelessRandomUniform", "StatelessRandomNormal",
                                            "StatelessTruncatedNormal", "Shape", "ShapeN", "Size"});
  if (kept->contains(node->type_string())) return false;
  return std::none_of(node->output_types().begin(), node->output_types().end(),
                      [](tensorflow::DataType type) { return type == tensorflow::DT_VARIANT; });
}

// Numbers the functions that the program calls on the host, and takes them out of it.
absl::Status TakeHostFunctions(FunctionLibraryDefinition* library,
                               std::vector<HostFunctionSource>* functions) {
  absl::flat_hash_map<std::string, int> numbers;
  for (const std::string& name : library->ListFunctionNames()) {
    FunctionDef function = *library->Find(name);
    bool changed = false;
    for (tensorflow::NodeDef& node : *function.mutable_node_def()) {
      if (node.op() != kHostCallOp) continue;
      auto& attributes = *node.mutable_attr();
      const std::string& called = attributes["function"].s();
      const auto [number, fresh] = numbers.emplace(called, functions->size());
      if (fresh) {
        functions->push_back({called, attributes["library"].s(), attributes["source"].s()});
      }
      attributes["library"].set_s("");
      attributes[kHostFunctionNumber].set_i(number->second);
      changed = true;
    }
    if (!changed) continue;
    if (absl::Status status = library->ReplaceFunction(name, function); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// Lets the transfers of clusters in the host graph tell which cluster they belong to. The bridge
// may split a cluster: the first part counts its calls.
absl::Status CountClusters(const std::string& module, FunctionLibraryDefinition* library) {
  const std::map<std::string, std::string> marks = ClusterMarks(module);
  if (marks.empty()) return absl::OkStatus();
  for (const std::string& name : library->ListFunctionNames()) {
    FunctionDef function = *library->Find(name);
    absl::flat_hash_set<std::string> counted;
    for (tensorflow::NodeDef& node : *function.mutable_node_def()) {
      if (node.op() != kHostComputeOp) continue;
      auto& attributes = *node.mutable_attr();
      const auto mark = marks.find(attributes["send_key"].s());
      if (mark == marks.end()) continue;
      attributes["counted_as"].set_s(mark->second);
      attributes["counts_call"].set_b(counted.insert(mark->second).second);
      // It says that the op comes from a function of the mark's name, and errors would tell so.
      node.clear_experimental_debug_info();
    }
    if (counted.empty()) continue;
    if (absl::Status status = library->ReplaceFunction(name, function); !status.ok()) return status;
  }
  return absl::OkStatus();
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
                               std::vector<XlaCompiler::Argument>* arguments) {
  arguments->resize(metadata.args_size());
  for (int i = 0; i < metadata.args_size(); ++i) {
    const Metadata::Arg& described = metadata.args(i);
    XlaCompiler::Argument& argument = (*arguments)[i];
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
    argument.kind = XlaCompiler::Argument::kParameter;
    const auto& dynamic = described.is_bounded_dynamic_dim();
    if (std::find(dynamic.begin(), dynamic.end(), true) != dynamic.end()) {
      xla::PrimitiveType type;
      absl::Status status = tensorflow::DataTypeToPrimitiveType(described.dtype(), &type);
      if (!status.ok()) return status;
      argument.shape = xla::ShapeUtil::MakeShape(type, shapes[i].dim_sizes(),
                                                 std::vector<bool>(dynamic.begin(), dynamic.end()));
    }
  }
  return absl::OkStatus();
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
  FunctionLibraryDefinition library(tensorflow::OpRegistry::Global(),
                                    tensorflow::FunctionDefLibrary());
  absl::Status status = ExportFunctions(module, &library);
  if (!status.ok()) return status;
  lowered->takes = QueuesOf(module);
  lowered->updated_arguments = UpdatedArguments(module);
  const Partitioning partitioning = PartitioningOf(metadata);
  if (partitioning == Partitioning::kMerged) {
    if (lowered->takes.embedding) {
      return absl::UnimplementedError(
          "A TPU computation whose ops are placed on the cores of a replica one by one can't use "
          "TPU embeddings. Give the replica one core, or use XLAOptions("
          "use_spmd_for_xla_partitioning=True) without tpu.core().");
    }
    status = RemovePlacement(&library);
    if (!status.ok()) return status;
  }
  status = OrderHostTransfers(kEntryFunction, &library, &lowered->has_host_transfers);
  if (!status.ok()) return status;

  status = CountClusters(module, &library);
  if (!status.ok()) return status;
  status = TakeHostFunctions(&library, &lowered->host_functions);
  if (!status.ok()) return status;

  status = ReplaceOpsOfDynamicSize(metadata, &library);
  if (!status.ok()) return status;
  // Only XLA can split an op over cores.
  if (lowered->options.tensorflow_kernels && partitioning != Partitioning::kSpmd) {
    status = UseTensorFlowKernels(&library);
    if (!status.ok()) return status;
  }

  tensorflow::XlaOpRegistry::RegisterCompilationKernels();
  XlaCompiler::Options options;
  options.device_type = tensorflow::DeviceType(kCompilationDevice);
  options.flib_def = &library;
  options.allow_cpu_custom_calls = true;
  options.detailed_logging = false;
  std::function<absl::Status(tensorflow::ResourceMgr*)> tell_replicas =
      [&metadata](tensorflow::ResourceMgr* manager) {
        return SetProgramReplicas(manager, std::max(1, metadata.num_replicas()));
      };
  options.populate_resource_manager = &tell_replicas;
  XlaCompiler compiler(options);

  std::vector<XlaCompiler::Argument> arguments;
  status = DescribeArguments(metadata, argument_shapes, &arguments);
  if (!status.ok()) return status;

  tensorflow::FunctionLibraryRuntime* runtime = compiler.flib_runtime();
  tensorflow::FunctionLibraryRuntime::Handle handle;
  status = runtime->Instantiate(kEntryFunction, tensorflow::AttrSlice(), &handle);
  if (!status.ok()) return status;
  const tensorflow::FunctionBody* body = runtime->GetFunctionBody(handle);
  auto graph = std::make_unique<Graph>(runtime->GetFunctionLibraryDefinition());
  tensorflow::CopyGraph(*body->graph, graph.get());
  for (size_t i = 0; i < body->arg_nodes.size() && i < arguments.size(); ++i) {
    arguments[i].node_name = body->arg_nodes[i]->name();
  }
  if (partitioning == Partitioning::kSpmd) RestoreShardings(metadata, graph.get());
  InlineAndFold(runtime, &graph);

  XlaCompiler::CompileOptions compile_options;
  compile_options.use_tuple_arg = false;
  compile_options.always_return_tuple = true;
  compile_options.is_entry_computation = true;
  return compiler.CompileGraph(compile_options, kEntryFunction, std::move(graph), arguments,
                               &lowered->result);
}

}  // namespace tf_tpu_ext
