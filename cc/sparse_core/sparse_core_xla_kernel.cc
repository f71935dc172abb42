#include "cc/sparse_core/sparse_core_xla_kernel.h"

#include "absl/strings/str_cat.h"
#include "cc/base/machine.h"
#include "cc/sparse_core/csr.h"
#include "tensorflow/core/framework/op_requires.h"
#include "xla/hlo/builder/lib/constants.h"
#include "xla/layout_util.h"
#include "xla/shape_util.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::XlaOpKernelContext;
using xla::XlaOp;

constexpr char kMinibatches[] = "num_minibatches_per_physical_sparse_core";

XlaOp OfAllChips(const SparseCoreShape& shape, XlaOp value,
                 const std::vector<xla::ReplicaGroup>& groups) {
  return shape.chips == 1 ? value : xla::AllGather(value, 0, shape.chips, groups);
}

// Includes the padding.
XlaOp Whole(XlaOpKernelContext* context, const char* input) {
  return xla::RemoveDynamicDimension(context->Input(input), 0);
}

}  // namespace

xla::Shape RowMajor(xla::Shape shape) {
  xla::LayoutUtil::SetToDefaultLayout(&shape);
  return shape;
}

absl::StatusOr<XlaOp> SparseCoreCall(xla::XlaBuilder* builder, const char* target,
                                     const std::string& config, const std::vector<XlaOp>& operands,
                                     const std::vector<xla::Shape>& results,
                                     const ResultAliases& aliases) {
  std::vector<xla::Shape> operand_shapes;
  for (XlaOp operand : operands) {
    TF_ASSIGN_OR_RETURN(xla::Shape shape, builder->GetShape(operand));
    operand_shapes.push_back(RowMajor(std::move(shape)));
  }
  return xla::CustomCallWithLayout(
      builder, target, operands, xla::ShapeUtil::MakeTupleShape(results), operand_shapes, config,
      /*has_side_effect=*/false, aliases, /*literal=*/nullptr,
      xla::CustomCallSchedule::SCHEDULE_NONE, xla::CustomCallApiVersion::API_VERSION_TYPED_FFI);
}

SparseCoreXlaKernel::SparseCoreXlaKernel(OpKernelConstruction* construction)
    : XlaOpKernel(construction) {
  shape_.op = name();
  OP_REQUIRES_OK(construction, construction->GetAttr("table_name", &shape_.table));
  int asked = -1;
  // TensorFlow 2.19 does not have this attribute.
  if (construction->HasAttr("num_sparsecores_per_device")) {
    OP_REQUIRES_OK(construction, construction->GetAttr("num_sparsecores_per_device", &asked));
  }
  const MachineOptions machine = GetMachineOptions();
  shape_.cores_per_chip = asked == -1 ? SparseCoresOf(machine) : asked;
  OP_REQUIRES(
      construction,
      asked == -1 || (asked > 0 && (machine.sparse_cores == 0 || machine.sparse_cores == asked)),
      absl::InvalidArgumentError(absl::StrCat(
          "Op ", name(), " has num_sparsecores_per_device=", asked, "; expected -1 or ",
          machine.sparse_cores == 0 ? "a positive number" : absl::StrCat(machine.sparse_cores),
          ". tf_tpu_ext.configure(sparse_cores=...) sets how many a virtual core has.")));
  if (construction->HasAttr("max_ids_per_sparse_core")) {
    OP_REQUIRES_OK(construction, construction->GetAttr("max_ids_per_sparse_core", &shape_.max_ids));
  }
}

absl::StatusOr<SparseCoreXlaKernel::Ids> SparseCoreXlaKernel::ReadIds(
    XlaOpKernelContext* context, int64_t samples, const xla::Shape& table) const {
  Ids ids;
  ids.shape = shape_;
  const Lowering lowering = GetLowering(context->op_kernel_context()->resource_manager());
  TF_RETURN_IF_ERROR(CheckProgram(lowering));
  ids.shape.chips = static_cast<int>(lowering.replicas);
  TF_RETURN_IF_ERROR(ReadSizes(context, samples, table, &ids.shape));
  xla::XlaBuilder* builder = context->builder();
  const XlaOp words =
      xla::ConcatInDim(builder,
                       {Whole(context, "row_pointers"), Whole(context, "sorted_sample_ids"),
                        Whole(context, "sorted_token_ids"),
                        xla::BitcastConvertType(Whole(context, "sorted_gains"), xla::S32),
                        xla::Reshape(context->Input(kMinibatches), {1})},
                       0);
  ids.packed = OfAllChips(ids.shape, words, AllChips(ids.shape));
  ids.chip = ids.shape.chips == 1 ? xla::ConstantR0<int32_t>(builder, 0)
                                  : xla::ConvertElementType(xla::ReplicaId(builder), xla::S32);
  return ids;
}

std::vector<xla::ReplicaGroup> SparseCoreXlaKernel::AllChips(const SparseCoreShape& shape) {
  std::vector<xla::ReplicaGroup> groups(1);
  for (int chip = 0; chip < shape.chips; ++chip) groups[0].add_replica_ids(chip);
  return groups;
}

XlaOp SparseCoreXlaKernel::GradientsOfAllChips(XlaOpKernelContext* context,
                                               const SparseCoreShape& shape) {
  return OfAllChips(shape, context->Input("activation_gradients"), AllChips(shape));
}

absl::StatusOr<int64_t> SparseCoreXlaKernel::SamplesOfGradients(XlaOpKernelContext* context,
                                                                const xla::Shape& table) const {
  TF_ASSIGN_OR_RETURN(const xla::Shape gradients, context->InputXlaShape("activation_gradients"));
  const bool same = gradients.dimensions().size() == 2 && table.dimensions().size() == 2 &&
                    gradients.is_static() && gradients.dimensions(1) == table.dimensions(1);
  if (same) return gradients.dimensions(0);
  return absl::InvalidArgumentError(
      absl::StrCat("Op ", name(), " got gradients ", gradients.ToString(), " for the table ",
                   table.ToString(), "; expected [samples, the table's width]."));
}

absl::Status SparseCoreXlaKernel::CheckProgram(const Lowering& lowering) const {
  if (lowering.for_target) {
    return absl::UnimplementedError(
        absl::StrCat("Op ", name(),
                     " uses SparseCores, of which tf_tpu_ext does not ask a real TPU's compiler. "
                     "Leave the target out for this program."));
  }
  if (lowering.cores_per_replica == 1) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("Op ", name(), " is in a replica of ", lowering.cores_per_replica,
                   " cores; a table is divided over SparseCores of replicas with one core. Use a "
                   "device assignment with one core for each replica."));
}

absl::Status SparseCoreXlaKernel::ReadSizes(XlaOpKernelContext* context, int64_t samples,
                                            const xla::Shape& table, SparseCoreShape* shape) const {
  TF_ASSIGN_OR_RETURN(const xla::Shape pointers, context->InputXlaShape("row_pointers"));
  TF_ASSIGN_OR_RETURN(const xla::Shape rows, context->InputXlaShape("sorted_token_ids"));
  TF_ASSIGN_OR_RETURN(const xla::Shape minibatches, context->InputXlaShape(kMinibatches));
  const int cores = shape->cores_per_chip;
  const int64_t of_minibatch = cores * RoundUpToPadding(int64_t{shape->chips} * cores);
  bool valid = table.dimensions().size() == 2 && table.is_static() &&
               table.element_type() == xla::F32 && table.dimensions(0) % cores == 0 &&
               pointers.dimensions().size() == 1 && pointers.dimensions(0) >= of_minibatch &&
               rows.dimensions().size() == 1 && samples % cores == 0 &&
               xla::ShapeUtil::ElementsIn(minibatches) == 1;
  for (const char* input : {"sorted_sample_ids", "sorted_gains"}) {
    TF_ASSIGN_OR_RETURN(const xla::Shape shape_of_input, context->InputXlaShape(input));
    valid = valid && xla::ShapeUtil::SameDimensions(shape_of_input, rows);
  }
  if (!valid) {
    return absl::InvalidArgumentError(absl::StrCat(
        "Op ", name(), " got row pointers ", pointers.ToString(), ", ids ", rows.ToString(), ", ",
        samples, " samples and the table ", table.ToString(), "; expected at least ", of_minibatch,
        " row pointers, as many samples and gains as ids, one number of minibatches, and samples "
        "and float32 rows for each of ",
        cores, " SparseCores."));
  }
  shape->row_pointers = static_cast<int>(pointers.dimensions(0));
  shape->ids = static_cast<int>(rows.dimensions(0));
  shape->samples = static_cast<int>(samples);
  shape->rows = static_cast<int>(table.dimensions(0));
  shape->width = static_cast<int>(table.dimensions(1));
  return absl::OkStatus();
}

}  // namespace tf_tpu_ext
