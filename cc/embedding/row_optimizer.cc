#include "cc/embedding/row_optimizer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/tpu/tpu_embedding_optimization_parameters_utils.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::tpu::ClippingLimits;
using tensorflow::tpu::OptimizationParameters;

// For loading and retrieving alone; the accumulator of gradients is empty between steps.
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

// A quotient that is zero where nothing was accumulated yet.
float Divide(float numerator, float denominator) {
  return denominator == 0 ? 0.0f : numerator / denominator;
}

float Clip(const ClippingLimits& limits, float value) {
  if (limits.has_lower()) value = std::max(value, limits.lower().value());
  if (limits.has_upper()) value = std::min(value, limits.upper().value());
  return value;
}

}  // namespace

absl::StatusOr<RowOptimizer> RowOptimizer::Create(const OptimizationParameters& parameters) {
  if (!IsSupported(parameters.parameters_case())) {
    return absl::UnimplementedError(absl::StrCat(
        "The embedding optimizer ",
        tensorflow::tpu::GetOptimizationAlgorithmFriendlyName(parameters.parameters_case()),
        " is not supported on virtual TPUs. Supported are Adadelta, Adagrad, Adagrad with "
        "momentum, Adam, Assign, centered RMSProp, FTRL, Lion, Momentum, proximal Adagrad, RMSProp "
        "and stochastic gradient descent."));
  }
  RowOptimizer optimizer(parameters);
  absl::Status status =
      tensorflow::tpu::UseGradientAccumulation(parameters, &optimizer.accumulates_);
  if (!status.ok()) return status;
  std::vector<tensorflow::tpu::StateVariableSpecification> states;
  status = tensorflow::tpu::GetOptimizationAlgorithmStateVariables(parameters, &states);
  if (!status.ok()) return status;
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
  const size_t size = gradient.size();
  const float lr = learning_rate;
  switch (parameters_.parameters_case()) {
    case OptimizationParameters::kStochasticGradientDescent:
      for (size_t i = 0; i < size; ++i) parameters[i] -= lr * gradient[i];
      return;
    case OptimizationParameters::kAssign:
      std::copy(gradient.begin(), gradient.end(), parameters);
      return;
    case OptimizationParameters::kAdagrad:
      for (size_t i = 0; i < size; ++i) {
        const float g = gradient[i];
        slots[0][i] += g * g;
        parameters[i] -= Divide(lr * g, std::sqrt(slots[0][i]));
      }
      return;
    case OptimizationParameters::kProximalAdagrad: {
      const auto& options = parameters_.proximal_adagrad();
      for (size_t i = 0; i < size; ++i) {
        const float g = gradient[i];
        slots[0][i] += g * g;
        const float scaled = Divide(lr, std::sqrt(slots[0][i]));
        const float moved = parameters[i] - g * scaled;
        const float shrunk =
            options.l1() > 0 ? Sign(moved) * std::max(std::abs(moved) - scaled * options.l1(), 0.0f)
                             : moved;
        parameters[i] = shrunk / (1 + options.l2() * scaled);
      }
      return;
    }
    case OptimizationParameters::kAdagradMomentum: {
      const auto& options = parameters_.adagrad_momentum();
      for (size_t i = 0; i < size; ++i) {
        const float g = gradient[i];
        float& accumulator = slots[0][i];
        accumulator = options.beta2() == 1
                          ? accumulator + g * g
                          : options.beta2() * accumulator + (1 - options.beta2()) * g * g;
        const float scaled =
            g == 0 ? 0.0f
                   : g * std::pow(accumulator + options.epsilon(), -1.0f / options.exponent());
        float& momentum = slots[1][i];
        momentum = options.momentum() * momentum + scaled;
        parameters[i] -=
            lr * (options.use_nesterov() ? options.momentum() * momentum + scaled : momentum);
      }
      return;
    }
    case OptimizationParameters::kAdam: {
      const auto& options = parameters_.adam();
      for (size_t i = 0; i < size; ++i) {
        const float g = gradient[i];
        float& m = slots[0][i];
        float& v = slots[1][i];
        m = options.beta1() * m + (1 - options.beta1()) * g;
        v = options.beta2() * v + (1 - options.beta2()) * g * g;
        const float scale = options.use_sum_inside_sqrt()
                                ? std::sqrt(v + options.epsilon() * options.epsilon())
                                : std::sqrt(v) + options.epsilon();
        parameters[i] -= Divide(lr * m, scale);
      }
      return;
    }
    case OptimizationParameters::kFtrl: {
      const auto& options = parameters_.ftrl();
      // With linears that hold their value times the learning rate, all terms do.
      const float scale = options.multiply_linear_by_lr() ? lr : 1.0f;
      const float unscale = options.multiply_linear_by_lr() ? 1.0f : 1.0f / lr;
      const float l1 = options.l1() * scale;
      const float l2 = options.l2() * scale + options.beta() * unscale / 2;
      for (size_t i = 0; i < size; ++i) {
        const float g = gradient[i];
        float& accumulator = slots[0][i];
        float& linear = slots[1][i];
        const float before = std::pow(accumulator, -options.lr_power());
        accumulator += g * g;
        const float after = std::pow(accumulator, -options.lr_power());
        linear += g * scale - (after - before) * unscale * parameters[i];
        const float quadratic = after * unscale + 2 * l2;
        parameters[i] = std::abs(linear) > l1 ? Divide(Sign(linear) * l1 - linear, quadratic) : 0;
      }
      return;
    }
    case OptimizationParameters::kMomentum: {
      const auto& options = parameters_.momentum();
      for (size_t i = 0; i < size; ++i) {
        const float g = gradient[i];
        float& momentum = slots[0][i];
        momentum = options.momentum() * momentum + g;
        parameters[i] -=
            lr * (options.use_nesterov() ? g + options.momentum() * momentum : momentum);
      }
      return;
    }
    case OptimizationParameters::kLion: {
      const auto& options = parameters_.lion();
      for (size_t i = 0; i < size; ++i) {
        const float g = gradient[i];
        float& momentum = slots[0][i];
        parameters[i] -= lr * Sign(options.beta1() * momentum + (1 - options.beta1()) * g);
        momentum = options.beta2() * momentum + (1 - options.beta2()) * g;
      }
      return;
    }
    case OptimizationParameters::kRmsProp: {
      const auto& options = parameters_.rms_prop();
      for (size_t i = 0; i < size; ++i) {
        const float g = gradient[i];
        float& square = slots[0][i];
        float& momentum = slots[1][i];
        square += (g * g - square) * (1 - options.rho());
        momentum =
            options.momentum() * momentum + Divide(lr * g, std::sqrt(square + options.epsilon()));
        parameters[i] -= momentum;
      }
      return;
    }
    case OptimizationParameters::kCenteredRmsProp: {
      const auto& options = parameters_.centered_rms_prop();
      for (size_t i = 0; i < size; ++i) {
        const float g = gradient[i];
        float& square = slots[0][i];
        float& momentum = slots[1][i];
        float& mean = slots[2][i];
        square += (g * g - square) * (1 - options.rho());
        mean += (g - mean) * (1 - options.rho());
        momentum = options.momentum() * momentum +
                   Divide(lr * g, std::sqrt(square - mean * mean + options.epsilon()));
        parameters[i] -= momentum;
      }
      return;
    }
    case OptimizationParameters::kAdadelta: {
      const auto& options = parameters_.adadelta();
      for (size_t i = 0; i < size; ++i) {
        const float g = gradient[i];
        float& square = slots[0][i];
        float& updates = slots[1][i];
        square = square * options.rho() + g * g * (1 - options.rho());
        const float update =
            Divide(std::sqrt(updates + options.epsilon()), std::sqrt(square + options.epsilon())) *
            g;
        updates = updates * options.rho() + update * update * (1 - options.rho());
        parameters[i] -= lr * update;
      }
      return;
    }
    default:  // refused by Create
      return;
  }
}

}  // namespace tf_tpu_ext
