#include "cc/embedding/row_optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/tpu/tpu_embedding_optimization_parameters_utils.h"
#include "xla/tsl/platform/errors.h"

namespace tf_tpu_ext {
namespace {

namespace tpu = tensorflow::tpu;

using tensorflow::tpu::ClippingLimits;
using tensorflow::tpu::OptimizationParameters;

// For loading and retrieving only; the accumulator of gradients is empty between steps.
constexpr char kHiddenSlot[] = "gradient_accumulators";

bool IsSupported(OptimizationParameters::ParametersCase algorithm) {
  switch (algorithm) {
    case OptimizationParameters::kAdadelta:
    case OptimizationParameters::kAdagrad:
    case OptimizationParameters::kAdagradMomentum:
    case OptimizationParameters::kAdam:
    case OptimizationParameters::kAssign:
    case OptimizationParameters::kCenteredRmsProp:
    case OptimizationParameters::kFtrl:
    case OptimizationParameters::kLion:
    case OptimizationParameters::kMomentum:
    case OptimizationParameters::kProximalAdagrad:
    case OptimizationParameters::kRmsProp:
    case OptimizationParameters::kStochasticGradientDescent:
      return true;
    default:
      return false;
  }
}

float Sign(float value) { return value > 0 ? 1.0f : value < 0 ? -1.0f : 0.0f; }

// A quotient that is zero if nothing has been accumulated yet.
float Divide(float numerator, float denominator) {
  return denominator == 0 ? 0.0f : numerator / denominator;
}

float Clip(const ClippingLimits& limits, float value) {
  if (limits.has_lower()) value = std::max(value, limits.lower().value());
  if (limits.has_upper()) value = std::min(value, limits.upper().value());
  return value;
}

// A row that is being updated.
struct Row {
  absl::Span<const float> gradient;
  float learning_rate;
  float* parameters;
  absl::Span<float* const> slots;

  size_t size() const { return gradient.size(); }
};

void DescendGradient(const Row& row) {
  for (size_t i = 0; i < row.size(); ++i) {
    row.parameters[i] -= row.learning_rate * row.gradient[i];
  }
}

void ApplyAdagrad(const Row& row) {
  for (size_t i = 0; i < row.size(); ++i) {
    const float g = row.gradient[i];
    float& accumulator = row.slots[0][i];
    accumulator += g * g;
    row.parameters[i] -= Divide(row.learning_rate * g, std::sqrt(accumulator));
  }
}

void ApplyProximalAdagrad(const tpu::ProximalAdagradParameters& options, const Row& row) {
  for (size_t i = 0; i < row.size(); ++i) {
    const float g = row.gradient[i];
    float& accumulator = row.slots[0][i];
    accumulator += g * g;
    const float scaled = Divide(row.learning_rate, std::sqrt(accumulator));
    const float moved = row.parameters[i] - g * scaled;
    const float shrunk = options.l1() > 0
                             ? Sign(moved) * std::max(std::abs(moved) - scaled * options.l1(), 0.0f)
                             : moved;
    row.parameters[i] = shrunk / (1 + options.l2() * scaled);
  }
}

void ApplyAdagradMomentum(const tpu::AdagradMomentumParameters& options, const Row& row) {
  for (size_t i = 0; i < row.size(); ++i) {
    const float g = row.gradient[i];
    float& accumulator = row.slots[0][i];
    float& momentum = row.slots[1][i];
    // With a decay of one, it is Adagrad's sum, not a mean that never changes.
    accumulator = options.beta2() == 1
                      ? accumulator + g * g
                      : options.beta2() * accumulator + (1 - options.beta2()) * g * g;
    const float scaled =
        g == 0 ? 0.0f : g * std::pow(accumulator + options.epsilon(), -1.0f / options.exponent());
    momentum = options.momentum() * momentum + scaled;
    row.parameters[i] -=
        row.learning_rate *
        (options.use_nesterov() ? options.momentum() * momentum + scaled : momentum);
  }
}

void ApplyAdam(const tpu::AdamParameters& options, const Row& row) {
  for (size_t i = 0; i < row.size(); ++i) {
    const float g = row.gradient[i];
    float& m = row.slots[0][i];
    float& v = row.slots[1][i];
    m = options.beta1() * m + (1 - options.beta1()) * g;
    v = options.beta2() * v + (1 - options.beta2()) * g * g;
    const float scale = options.use_sum_inside_sqrt()
                            ? std::sqrt(v + options.epsilon() * options.epsilon())
                            : std::sqrt(v) + options.epsilon();
    row.parameters[i] -= Divide(row.learning_rate * m, scale);
  }
}

void ApplyFtrl(const tpu::FtrlParameters& options, const Row& row) {
  const float lr = row.learning_rate;
  // If the linear slots hold their value times the learning rate, all terms do.
  const float scale = options.multiply_linear_by_lr() ? lr : 1.0f;
  const float unscale = options.multiply_linear_by_lr() ? 1.0f : 1.0f / lr;
  const float l1 = options.l1() * scale;
  const float l2 = options.l2() * scale + options.beta() * unscale / 2;
  for (size_t i = 0; i < row.size(); ++i) {
    const float g = row.gradient[i];
    float& accumulator = row.slots[0][i];
    float& linear = row.slots[1][i];
    const float before = std::pow(accumulator, -options.lr_power());
    accumulator += g * g;
    const float after = std::pow(accumulator, -options.lr_power());
    linear += g * scale - (after - before) * unscale * row.parameters[i];
    const float quadratic = after * unscale + 2 * l2;
    row.parameters[i] = std::abs(linear) > l1 ? Divide(Sign(linear) * l1 - linear, quadratic) : 0;
  }
}

void ApplyMomentum(const tpu::MomentumParameters& options, const Row& row) {
  for (size_t i = 0; i < row.size(); ++i) {
    const float g = row.gradient[i];
    float& momentum = row.slots[0][i];
    momentum = options.momentum() * momentum + g;
    row.parameters[i] -=
        row.learning_rate * (options.use_nesterov() ? g + options.momentum() * momentum : momentum);
  }
}

void ApplyLion(const tpu::LionParameters& options, const Row& row) {
  for (size_t i = 0; i < row.size(); ++i) {
    const float g = row.gradient[i];
    float& momentum = row.slots[0][i];
    row.parameters[i] -=
        row.learning_rate * Sign(options.beta1() * momentum + (1 - options.beta1()) * g);
    momentum = options.beta2() * momentum + (1 - options.beta2()) * g;
  }
}

void ApplyRmsProp(const tpu::RmsPropParameters& options, const Row& row) {
  for (size_t i = 0; i < row.size(); ++i) {
    const float g = row.gradient[i];
    float& square = row.slots[0][i];
    float& momentum = row.slots[1][i];
    square += (g * g - square) * (1 - options.rho());
    momentum = options.momentum() * momentum +
               Divide(row.learning_rate * g, std::sqrt(square + options.epsilon()));
    row.parameters[i] -= momentum;
  }
}

void ApplyCenteredRmsProp(const tpu::CenteredRmsPropParameters& options, const Row& row) {
  for (size_t i = 0; i < row.size(); ++i) {
    const float g = row.gradient[i];
    float& square = row.slots[0][i];
    float& momentum = row.slots[1][i];
    float& mean = row.slots[2][i];
    square += (g * g - square) * (1 - options.rho());
    mean += (g - mean) * (1 - options.rho());
    momentum = options.momentum() * momentum +
               Divide(row.learning_rate * g, std::sqrt(square - mean * mean + options.epsilon()));
    row.parameters[i] -= momentum;
  }
}

void ApplyAdadelta(const tpu::AdadeltaParameters& options, const Row& row) {
  for (size_t i = 0; i < row.size(); ++i) {
    const float g = row.gradient[i];
    float& square = row.slots[0][i];
    float& updates = row.slots[1][i];
    square = square * options.rho() + g * g * (1 - options.rho());
    const float update =
        Divide(std::sqrt(updates + options.epsilon()), std::sqrt(square + options.epsilon())) * g;
    updates = updates * options.rho() + update * update * (1 - options.rho());
    row.parameters[i] -= row.learning_rate * update;
  }
}

}  // namespace

absl::StatusOr<RowOptimizer> RowOptimizer::Create(const OptimizationParameters& parameters) {
  if (!IsSupported(parameters.parameters_case())) {
    return absl::UnimplementedError(absl::StrCat(
        "The embedding optimizer ",
        tpu::GetOptimizationAlgorithmFriendlyName(parameters.parameters_case()),
        " is not supported on virtual TPUs. Supported are Adadelta, Adagrad, Adagrad with "
        "momentum, Adam, Assign, centered RMSProp, FTRL, Lion, Momentum, proximal Adagrad, RMSProp "
        "and stochastic gradient descent."));
  }
  RowOptimizer optimizer(parameters);
  TF_RETURN_IF_ERROR(tpu::UseGradientAccumulation(parameters, &optimizer.accumulates_));
  std::vector<tpu::StateVariableSpecification> states;
  TF_RETURN_IF_ERROR(tpu::GetOptimizationAlgorithmStateVariables(parameters, &states));
  for (size_t i = 1; i < states.size(); ++i) {
    if (states[i].name() != kHiddenSlot) optimizer.slots_.push_back(states[i].name());
  }
  optimizer.updates_all_rows_ =
      parameters.adam().use_non_lazy_adam() || parameters.lion().use_non_lazy_lion();
  const int dynamic = optimizer.num_dynamic_inputs();
  if (dynamic < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("The embedding optimizer's dynamic learning rate has the tag ", dynamic - 1,
                     "; tags count up from zero."));
  }
  return optimizer;
}

int RowOptimizer::num_dynamic_inputs() const {
  const auto& rate = parameters_.learning_rate();
  return rate.has_dynamic() ? rate.dynamic().tag() + 1 : 0;
}

void RowOptimizer::Apply(absl::Span<const float> gradient, absl::Span<const float> dynamic_inputs,
                         float* parameters, absl::Span<float* const> slots) const {
  const auto& rate = parameters_.learning_rate();
  // As on a TPU, clipping and decay come before the algorithm, and the limits of parameters after
  // it.
  const float learning_rate =
      rate.has_dynamic() ? dynamic_inputs[rate.dynamic().tag()] : rate.constant();
  std::vector<float> clipped;
  if (parameters_.has_gradient_clipping_limits()) {
    clipped.assign(gradient.begin(), gradient.end());
    for (float& value : clipped) value = Clip(parameters_.gradient_clipping_limits(), value);
    gradient = clipped;
  }
  if (float decay = parameters_.weight_decay_factor(); decay != 0) {
    if (parameters_.multiply_weight_decay_factor_by_learning_rate()) decay *= learning_rate;
    for (size_t i = 0; i < gradient.size(); ++i) parameters[i] -= decay * parameters[i];
  }
  ApplyAlgorithm(gradient, learning_rate, parameters, slots);
  if (parameters_.has_clipping_limits()) {
    for (size_t i = 0; i < gradient.size(); ++i) {
      parameters[i] = Clip(parameters_.clipping_limits(), parameters[i]);
    }
  }
}

void RowOptimizer::ApplyAlgorithm(absl::Span<const float> gradient, float learning_rate,
                                  float* parameters, absl::Span<float* const> slots) const {
  const Row row{gradient, learning_rate, parameters, slots};
  switch (parameters_.parameters_case()) {
    case OptimizationParameters::kStochasticGradientDescent:
      return DescendGradient(row);
    case OptimizationParameters::kAssign:
      std::copy(gradient.begin(), gradient.end(), parameters);
      return;
    case OptimizationParameters::kAdagrad:
      return ApplyAdagrad(row);
    case OptimizationParameters::kProximalAdagrad:
      return ApplyProximalAdagrad(parameters_.proximal_adagrad(), row);
    case OptimizationParameters::kAdagradMomentum:
      return ApplyAdagradMomentum(parameters_.adagrad_momentum(), row);
    case OptimizationParameters::kAdam:
      return ApplyAdam(parameters_.adam(), row);
    case OptimizationParameters::kFtrl:
      return ApplyFtrl(parameters_.ftrl(), row);
    case OptimizationParameters::kMomentum:
      return ApplyMomentum(parameters_.momentum(), row);
    case OptimizationParameters::kLion:
      return ApplyLion(parameters_.lion(), row);
    case OptimizationParameters::kRmsProp:
      return ApplyRmsProp(parameters_.rms_prop(), row);
    case OptimizationParameters::kCenteredRmsProp:
      return ApplyCenteredRmsProp(parameters_.centered_rms_prop(), row);
    case OptimizationParameters::kAdadelta:
      return ApplyAdadelta(parameters_.adadelta(), row);
    default:  // refused by Create
      return;
  }
}

}  // namespace tf_tpu_ext
