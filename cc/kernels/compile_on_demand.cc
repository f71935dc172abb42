#include "cc/kernels/compile_on_demand.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "cc/compiler/lower/rewrite_functions.h"
#include "cc/kernels/compile_and_launch.h"
#include "tensorflow/compiler/tf2xla/xla_compiler.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/framework/kernel_def.pb.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/platform/errors.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::NodeDef;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

constexpr char kStockCompileOnDemand[] = "XlaCompileOnDemandOp";

// Runs one op.
class CompileOnDemandOp : public CompileAndLaunchOp {
 public:
  CompileOnDemandOp(OpKernelConstruction* construction, const std::vector<int>& constants)
      : CompileAndLaunchOp(construction, construction->def().op(), constants,
                           /*compile_options=*/"") {}

 private:
  absl::Status Lower(OpKernelContext* context, tensorflow::XlaCompiler* compiler,
                     const tensorflow::XlaCompiler::CompileOptions& options,
                     absl::Span<const tensorflow::XlaArgument> arguments,
                     tensorflow::XlaCompilationResult* result) override {
    tensorflow::XlaCompiler::SingleOpCompileArgument op(*context);
    ChooseTpuPlatform(&op.node_def);
    return compiler->CompileSingleOp(options, op, arguments, result);
  }
};

}  // namespace

bool MustCompileOnDemand(const NodeDef& node) {
  std::string data_format;
  if (tensorflow::TryGetNodeAttr(node, "data_format", &data_format) &&
      absl::StartsWith(data_format, "NC")) {
    return true;
  }
  std::string kernel_class;
  const absl::Status found =
      tensorflow::FindKernelDef(tensorflow::DeviceType(tensorflow::DEVICE_CPU), node,
                                /*def=*/nullptr, &kernel_class);
  return !found.ok() || kernel_class == kStockCompileOnDemand;
}

tensorflow::OpKernel* MakeCompileOnDemandKernel(OpKernelConstruction* construction) {
  const tensorflow::OpDef* op = nullptr;
  std::vector<int> constants;
  absl::Status status =
      tensorflow::OpRegistry::Global()->LookUpOpDef(construction->def().op(), &op);
  if (status.ok()) {
    status =
        tensorflow::XlaOpRegistry::CompileTimeConstantInputs(construction->def(), *op, &constants);
  }
  if (!status.ok()) {
    construction->SetStatus(status);
    return nullptr;
  }
  return new CompileOnDemandOp(construction, constants);
}

}  // namespace tf_tpu_ext
