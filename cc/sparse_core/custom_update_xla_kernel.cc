// XLA kernel of XlaSparseDenseMatmulGradWithCsrInput, which updates a table sharded across
// SparseCores with an optimizer supplied by the user. The optimizer is a function of the gradient
// of one row, the row's values in all tables, and the hyperparameters. It returns the new values.
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cc/program/sparse_core_call.h"
#include "cc/sparse_core/sparse_core_xla_kernel.h"
#include "llvm/ADT/StringRef.h"
#include "mlir/IR/BuiltinOps.h"
#include "tensorflow/compiler/tf2xla/xla_compiler.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/framework/op_requires.h"
#include "xla/hlo/builder/lib/constants.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/hlo/builder/xla_computation.h"
#include "xla/shape_util.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::TensorShape;
using tensorflow::XlaOpKernelContext;
using xla::XlaOp;

// What the loop over rows carries, before the hyperparameters and the tables.
enum Carried { kIndex, kCount, kRows, kSums, kNumCarried };

class CustomUpdateOp : public SparseCoreXlaKernel {
 public:
  explicit CustomUpdateOp(OpKernelConstruction* construction) : SparseCoreXlaKernel(construction) {
    const tensorflow::NameAttrList* function = nullptr;
    OP_REQUIRES_OK(construction, construction->GetAttr("custom_computation", &function));
    function_ = *function;
  }

  void Compile(XlaOpKernelContext* context) override {
    std::vector<XlaOp> updated;
    OP_REQUIRES_OK(context, Lower(context, &updated));
    for (size_t i = 0; i < updated.size(); ++i) {
      context->SetOutput(static_cast<int>(i), updated[i]);
    }
  }

 private:
  absl::Status Lower(XlaOpKernelContext* context, std::vector<XlaOp>* updated) const {
    xla::XlaBuilder* const builder = context->builder();
    std::vector<XlaOp> tables, hyperparameters;
    std::vector<TensorShape> table_shapes, hyperparameter_shapes;
    TF_RETURN_IF_ERROR(context->InputList("tables", &tables, &table_shapes));
    TF_RETURN_IF_ERROR(
        context->InputList("hyperparameters", &hyperparameters, &hyperparameter_shapes));
    TF_ASSIGN_OR_RETURN(const xla::Shape table, builder->GetShape(tables[0]));
    TF_ASSIGN_OR_RETURN(const int64_t samples, SamplesOfGradients(context, table));
    TF_ASSIGN_OR_RETURN(const Ids ids, ReadIds(context, samples, table));
    for (const TensorShape& shape : table_shapes) {
      if (shape == table_shapes[0]) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("Op ", name(), " got tables ", table_shapes[0].DebugString(), " and ",
                       shape.DebugString(), "; expected all of one shape."));
    }
    const int64_t width = ids.shape.width;
    for (size_t i = 0; i < hyperparameters.size(); ++i) {
      if (hyperparameter_shapes[i].num_elements() != 1) {
        return absl::InvalidArgumentError(absl::StrCat("Op ", name(), " got the hyperparameter ",
                                                       hyperparameter_shapes[i].DebugString(),
                                                       "; expected a scalar."));
      }
      hyperparameters[i] = xla::Broadcast(xla::Reshape(hyperparameters[i], {}), {1, width});
    }
    const size_t num_arguments = 1 + tables.size() + hyperparameters.size();
    TF_ASSIGN_OR_RETURN(const xla::XlaComputation optimizer,
                        CompileOptimizer(context, num_arguments, tables.size(), width));
    TF_ASSIGN_OR_RETURN(
        const XlaOp sums,
        SparseCoreCall(builder, kSparseGradientsTarget, Encode(SparseGradientsCall{ids.shape}),
                       {ids.packed, ids.chip, GradientsOfAllChips(context, ids.shape)},
                       {RowMajor(xla::ShapeUtil::MakeShape(xla::S32, {ids.shape.rows})),
                        RowMajor(xla::ShapeUtil::MakeShape(xla::F32, {ids.shape.rows, width})),
                        RowMajor(xla::ShapeUtil::MakeShape(xla::S32, {}))},
                       {}));
    std::vector<XlaOp> carried(kNumCarried);
    carried[kIndex] = xla::ConstantR0<int32_t>(builder, 0);
    carried[kCount] = xla::GetTupleElement(sums, 2);
    carried[kRows] = xla::GetTupleElement(sums, 0);
    carried[kSums] = xla::GetTupleElement(sums, 1);
    carried.insert(carried.end(), hyperparameters.begin(), hyperparameters.end());
    const int64_t first_table = static_cast<int64_t>(carried.size());
    carried.insert(carried.end(), tables.begin(), tables.end());
    const XlaOp initial = xla::Tuple(builder, carried);
    TF_ASSIGN_OR_RETURN(const xla::Shape shape, builder->GetShape(initial));
    TF_ASSIGN_OR_RETURN(const xla::XlaComputation more, HasMoreRows(shape));
    TF_ASSIGN_OR_RETURN(const xla::XlaComputation update,
                        UpdateRow(shape, optimizer, first_table, width));
    const XlaOp results = xla::While(more, update, initial);
    for (size_t i = 0; i < tables.size(); ++i) {
      updated->push_back(xla::GetTupleElement(results, first_table + static_cast<int64_t>(i)));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<xla::XlaComputation> CompileOptimizer(XlaOpKernelContext* context,
                                                       size_t num_arguments, size_t num_tables,
                                                       int64_t width) const {
    tensorflow::XlaCompiler::CompileOptions options;
    options.use_tuple_arg = false;
    options.always_return_tuple = true;
    options.is_entry_computation = false;
    const xla::Shape row = xla::ShapeUtil::MakeShape(xla::F32, {1, width});
    std::vector<tensorflow::XlaCompiler::Argument> arguments(num_arguments);
    for (tensorflow::XlaCompiler::Argument& argument : arguments) {
      argument.kind = tensorflow::XlaCompiler::Argument::kParameter;
      argument.type = tensorflow::DT_FLOAT;
      argument.shape = row;
    }
    tensorflow::XlaCompiler::CompilationResult result;
    TF_RETURN_IF_ERROR(
        context->compiler()->CompileFunction(options, function_, arguments, &result));
    bool fits = result.xla_output_shape.tuple_shapes().size() == num_tables;
    for (const xla::Shape& returned : result.xla_output_shape.tuple_shapes()) {
      fits = fits && xla::ShapeUtil::Compatible(returned, row);
    }
    if (fits) return std::move(*result.computation);
    return absl::InvalidArgumentError(
        absl::StrCat("The optimizer ", function_.name(), " of op ", name(), " returns ",
                     result.xla_output_shape.ToString(), "; expected a new row ", row.ToString(),
                     " for each of ", num_tables, " tables."));
  }

  static absl::StatusOr<xla::XlaComputation> HasMoreRows(const xla::Shape& carried) {
    xla::XlaBuilder builder("has_more_rows");
    const XlaOp values = xla::Parameter(&builder, 0, carried, "carried");
    xla::Lt(xla::GetTupleElement(values, kIndex), xla::GetTupleElement(values, kCount));
    return builder.Build();
  }

  static absl::StatusOr<xla::XlaComputation> UpdateRow(const xla::Shape& carried,
                                                       const xla::XlaComputation& optimizer,
                                                       int64_t first_table, int64_t width) {
    xla::XlaBuilder builder("update_row");
    const XlaOp values = xla::Parameter(&builder, 0, carried, "carried");
    std::vector<XlaOp> next;
    for (size_t i = 0; i < carried.tuple_shapes().size(); ++i) {
      next.push_back(xla::GetTupleElement(values, static_cast<int64_t>(i)));
    }
    const XlaOp zero = xla::ConstantR0<int32_t>(&builder, 0);
    const XlaOp row = xla::Reshape(xla::DynamicSlice(next[kRows], {next[kIndex]}, {1}), {});
    std::vector<XlaOp> arguments = {
        xla::DynamicSlice(next[kSums], {next[kIndex], zero}, {1, width})};
    for (size_t i = first_table; i < next.size(); ++i) {
      arguments.push_back(xla::DynamicSlice(next[i], {row, zero}, {1, width}));
    }
    arguments.insert(arguments.end(), next.begin() + kNumCarried, next.begin() + first_table);
    const XlaOp updated = xla::Call(&builder, optimizer, arguments);
    for (size_t i = first_table; i < next.size(); ++i) {
      next[i] = xla::DynamicUpdateSlice(
          next[i], xla::GetTupleElement(updated, static_cast<int64_t>(i) - first_table),
          {row, zero});
    }
    next[kIndex] = next[kIndex] + xla::ConstantR0<int32_t>(&builder, 1);
    xla::Tuple(&builder, next);
    return builder.Build();
  }

  tensorflow::NameAttrList function_;
};

REGISTER_XLA_OP(Name("XlaSparseDenseMatmulGradWithCsrInput"), CustomUpdateOp);

}  // namespace
}  // namespace tf_tpu_ext
