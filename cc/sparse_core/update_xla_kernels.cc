// XLA kernels of updates to tables sharded across SparseCores. All cores exchange the ids and
// gradients of their samples, and each updates its own rows.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cc/program/sparse_core_call.h"
#include "cc/sparse_core/sparse_core_xla_kernel.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/framework/op_requires.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/shape_util.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::XlaOpKernelContext;
using tensorflow::tpu::OptimizationParameters;
using xla::XlaOp;

// An optimizer of the ops: the names of its tables, which are inputs, and its attributes.
struct Optimizer {
  // The optimizer's part of the op's name.
  const char* name;
  std::vector<const char*> tables;
  absl::Status (*read)(OpKernelConstruction* construction, OptimizationParameters* parameters);
};

absl::Status ReadSgd(OpKernelConstruction*, OptimizationParameters* parameters) {
  parameters->mutable_stochastic_gradient_descent();
  return absl::OkStatus();
}

absl::Status ReadAdagrad(OpKernelConstruction*, OptimizationParameters* parameters) {
  parameters->mutable_adagrad();
  return absl::OkStatus();
}

absl::Status ReadAdagradMomentum(OpKernelConstruction* construction,
                                 OptimizationParameters* parameters) {
  bool nesterov = false;
  float exponent = 0, beta1 = 0, beta2 = 0, epsilon = 0;
  TF_RETURN_IF_ERROR(construction->GetAttr("use_nesterov", &nesterov));
  TF_RETURN_IF_ERROR(construction->GetAttr("exponent", &exponent));
  TF_RETURN_IF_ERROR(construction->GetAttr("beta1", &beta1));
  TF_RETURN_IF_ERROR(construction->GetAttr("beta2", &beta2));
  TF_RETURN_IF_ERROR(construction->GetAttr("epsilon", &epsilon));
  auto* const options = parameters->mutable_adagrad_momentum();
  options->set_use_nesterov(nesterov);
  options->set_exponent(exponent);
  options->set_momentum(beta1);
  options->set_beta2(beta2);
  options->set_epsilon(epsilon);
  return absl::OkStatus();
}

absl::Status ReadAdam(OpKernelConstruction* construction, OptimizationParameters* parameters) {
  bool inside = false;
  float beta1 = 0, beta2 = 0, epsilon = 0;
  TF_RETURN_IF_ERROR(construction->GetAttr("use_sum_inside_sqrt", &inside));
  TF_RETURN_IF_ERROR(construction->GetAttr("beta1", &beta1));
  TF_RETURN_IF_ERROR(construction->GetAttr("beta2", &beta2));
  TF_RETURN_IF_ERROR(construction->GetAttr("epsilon", &epsilon));
  auto* const options = parameters->mutable_adam();
  options->set_use_sum_inside_sqrt(inside);
  options->set_beta1(beta1);
  options->set_beta2(beta2);
  options->set_epsilon(epsilon);
  return absl::OkStatus();
}

absl::Status ReadFtrl(OpKernelConstruction* construction, OptimizationParameters* parameters) {
  bool multiply = false;
  float beta = 0, power = 0, l1 = 0, l2 = 0;
  TF_RETURN_IF_ERROR(construction->GetAttr("multiply_linear_by_learning_rate", &multiply));
  TF_RETURN_IF_ERROR(construction->GetAttr("beta", &beta));
  TF_RETURN_IF_ERROR(construction->GetAttr("learning_rate_power", &power));
  TF_RETURN_IF_ERROR(construction->GetAttr("l1_regularization_strength", &l1));
  TF_RETURN_IF_ERROR(construction->GetAttr("l2_regularization_strength", &l2));
  auto* const options = parameters->mutable_ftrl();
  options->set_multiply_linear_by_lr(multiply);
  options->set_beta(beta);
  options->set_lr_power(power);
  options->set_l1(l1);
  options->set_l2(l2);
  return absl::OkStatus();
}

const std::vector<Optimizer>& Optimizers() {
  static const auto* const optimizers = new std::vector<Optimizer>{
      {"Sgd", {"embedding_table"}, ReadSgd},
      {"Adagrad", {"embedding_table", "accumulator"}, ReadAdagrad},
      {"AdagradMomentum", {"embedding_table", "accumulator", "momenta"}, ReadAdagradMomentum},
      {"Adam", {"embedding_table", "momenta", "velocity"}, ReadAdam},
      {"Ftrl", {"embedding_table", "accumulator", "linear"}, ReadFtrl},
  };
  return *optimizers;
}

// The optimizer of an op, found by the op's name.
const Optimizer* FindOptimizer(const std::string& op) {
  for (const Optimizer& optimizer : Optimizers()) {
    if (absl::StartsWith(op, absl::StrCat("XlaSparseDenseMatmulGradWith", optimizer.name, "And"))) {
      return &optimizer;
    }
  }
  return nullptr;
}

class UpdateOp : public SparseCoreXlaKernel {
 public:
  explicit UpdateOp(OpKernelConstruction* construction)
      : SparseCoreXlaKernel(construction), optimizer_(FindOptimizer(type_string())) {
    OP_REQUIRES(construction, optimizer_ != nullptr,
                absl::InternalError(absl::StrCat(type_string(), " is no update of a table.")));
    OP_REQUIRES_OK(construction, optimizer_->read(construction, &parameters_));
    float lower = 0, upper = 0;
    OP_REQUIRES_OK(construction, construction->GetAttr("clip_weight_min", &lower));
    OP_REQUIRES_OK(construction, construction->GetAttr("clip_weight_max", &upper));
    OP_REQUIRES(construction, lower <= upper,
                absl::InvalidArgumentError(absl::StrCat("Op ", name(), " has the clip_weight_min ",
                                                        lower, " and the clip_weight_max ", upper,
                                                        "; expected no smaller clip_weight_max.")));
    auto* const limits = parameters_.mutable_clipping_limits();
    if (!std::isinf(lower)) limits->mutable_lower()->set_value(lower);
    if (!std::isinf(upper)) limits->mutable_upper()->set_value(upper);
    parameters_.mutable_learning_rate()->mutable_dynamic()->set_tag(0);
    parameters_.set_gradient_accumulation_status(
        tensorflow::tpu::GradientAccumulationStatus::ENABLED);
  }

  void Compile(XlaOpKernelContext* context) override {
    OP_REQUIRES_VALUE(const XlaOp tables, context, Lower(context));
    for (size_t i = 0; i < optimizer_->tables.size(); ++i) {
      context->SetOutput(static_cast<int>(i), xla::GetTupleElement(tables, i));
    }
  }

 private:
  absl::StatusOr<XlaOp> Lower(XlaOpKernelContext* context) const {
    TF_ASSIGN_OR_RETURN(const xla::Shape table, context->InputXlaShape("embedding_table"));
    TF_ASSIGN_OR_RETURN(const int64_t samples, SamplesOfGradients(context, table));
    TF_ASSIGN_OR_RETURN(const Ids ids, ReadIds(context, samples, table));
    TF_ASSIGN_OR_RETURN(const xla::Shape rate, context->InputXlaShape("learning_rate"));
    if (xla::ShapeUtil::ElementsIn(rate) != 1) {
      return absl::InvalidArgumentError(absl::StrCat("Op ", name(), " got the learning_rate ",
                                                     rate.ToString(), "; expected a scalar."));
    }
    const XlaOp gradients = GradientsOfAllChips(context, ids.shape);
    std::vector<XlaOp> operands = {ids.packed, ids.chip, gradients,
                                   xla::Reshape(context->Input("learning_rate"), {})};
    std::vector<xla::Shape> results;
    ResultAliases aliases;
    for (const char* input : optimizer_->tables) {
      TF_ASSIGN_OR_RETURN(const xla::Shape shape, context->InputXlaShape(input));
      if (!xla::ShapeUtil::Compatible(shape, table)) {
        return absl::InvalidArgumentError(
            absl::StrCat("Op ", name(), " got the ", input, " ", shape.ToString(),
                         "; expected it to be like its table, ", table.ToString(), "."));
      }
      const int64_t result = static_cast<int64_t>(results.size());
      aliases.push_back({{result}, {static_cast<int64_t>(operands.size()), {}}});
      operands.push_back(context->Input(input));
      results.push_back(RowMajor(shape));
    }
    return SparseCoreCall(context->builder(), kSparseUpdateTarget,
                          Encode(SparseUpdateCall{ids.shape, parameters_}), operands, results,
                          aliases);
  }

  const Optimizer* const optimizer_;
  OptimizationParameters parameters_;
};

#define REGISTER_UPDATES(optimizer)                                                        \
  REGISTER_XLA_OP(Name("XlaSparseDenseMatmulGradWith" optimizer "AndCsrInput"), UpdateOp); \
  REGISTER_XLA_OP(Name("XlaSparseDenseMatmulGradWith" optimizer "AndStaticBufferSize"), UpdateOp)
REGISTER_UPDATES("Sgd");
REGISTER_UPDATES("Adagrad");
REGISTER_UPDATES("AdagradMomentum");
REGISTER_UPDATES("Adam");
REGISTER_UPDATES("Ftrl");

}  // namespace
}  // namespace tf_tpu_ext
