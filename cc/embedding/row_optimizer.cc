#include "cc/embedding/row_optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/tpu/tpu_embedding_optimization_parameters_utils.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

namespace tpu = tensorflow::tpu;

using tensorflow::tpu::ClippingLimits;
using tensorflow::tpu::OptimizationParameters;

// For loading and retrieving only; the accumulator of gradients is empty between steps.
constexpr char kHiddenSlot[] = "gradient_accumulators";

// A program is evaluated for about so many values at once: it takes three times as long row by row.
constexpr int64_t kValuesAtOnce = 1024;

bool IsSupported(OptimizationParameters::ParametersCase algorithm) {
  switch (algorithm) {
    case OptimizationParameters::kAdadelta:
    case OptimizationParameters::kAdagrad:
    case OptimizationParameters::kAdagradMomentum:
    case OptimizationParameters::kAdam:
    case OptimizationParameters::kAssign:
    case OptimizationParameters::kBoundedAdagrad:
    case OptimizationParameters::kCenteredRmsProp:
    case OptimizationParameters::kFrequencyAwareAdagrad:
    case OptimizationParameters::kFrequencyEstimator:
    case OptimizationParameters::kFtrl:
    case OptimizationParameters::kLion:
    case OptimizationParameters::kMomentum:
    case OptimizationParameters::kOnlineYogi:
    case OptimizationParameters::kProximalAdagrad:
    case OptimizationParameters::kProximalYogi:
    case OptimizationParameters::kRmsProp:
    case OptimizationParameters::kStochasticGradientDescent:
    case OptimizationParameters::kUserDefinedProgram:
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

// What regularization leaves of a value after a step of the rate: L1 moves it towards zero by a
// constant, L2 scales it.
float Shrink(float value, float rate, float l1, float l2) {
  if (l1 > 0) value = Sign(value) * std::max(std::abs(value) - rate * l1, 0.0f);
  return value / (1 + l2 * rate);
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
    row.parameters[i] = Shrink(row.parameters[i] - g * scaled, scaled, options.l1(), options.l2());
  }
}

void ApplyBoundedAdagrad(const tpu::BoundedAdagradParameters& options, const Row& row) {
  for (size_t i = 0; i < row.size(); ++i) {
    const float g = row.gradient[i];
    float& accumulator = row.slots[0][i];
    float after = accumulator + g * g;
    if (options.max_accumulator() > 0) after = std::min(after, options.max_accumulator());
    float update = Divide(row.learning_rate * g,
                          std::sqrt(options.update_accumulator_first() ? after : accumulator));
    if (const float limit = options.max_var_update(); limit > 0) {
      update = std::clamp(update, -limit, limit);
    }
    accumulator = after;
    row.parameters[i] -= update;
  }
}

// TensorFlow's description divides the step counter by the accumulator and multiplies by the
// gradient twice, which leaves the row's counter and the learning rate without a use. A row that is
// updated in a part p of the steps, as the counters say, has its rate multiplied by p to the power
// of -probability_exponent here.
void ApplyFrequencyAwareAdagrad(const tpu::FrequencyAwareAdagradParameters& options, float step,
                                const Row& row) {
  for (size_t i = 0; i < row.size(); ++i) {
    const float g = row.gradient[i];
    float& accumulator = row.slots[0][i];
    float& counter = row.slots[1][i];
    counter += 1;
    accumulator = std::max(options.accumulator_decay() * accumulator + g * g,
                           options.initial_accumulator_value());
    const float multiplier = std::min(std::pow(step / counter, options.probability_exponent()),
                                      options.max_lr_multiplier());
    const float update = Divide(g, std::sqrt(accumulator)) +
                         options.l1_regularization_strength() * Sign(row.parameters[i]) +
                         options.l2_regularization_strength() * row.parameters[i];
    row.parameters[i] -= row.learning_rate * multiplier * update;
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

// Yogi's mean of squares approaches the square by a step whose size does not depend on how far away
// it is.
float YogiMeanOfSquares(float mean, float g, float beta2) {
  return mean - (1 - beta2) * Sign(mean - g * g) * g * g;
}

void ApplyProximalYogi(const tpu::ProximalYogiParameters& options, const Row& row) {
  for (size_t i = 0; i < row.size(); ++i) {
    const float g = row.gradient[i];
    float& v = row.slots[0][i];
    float& m = row.slots[1][i];
    v = YogiMeanOfSquares(v, g, options.beta2());
    m = options.beta1() * m + (1 - options.beta1()) * g;
    const float scaled = Divide(row.learning_rate, std::sqrt(v) + options.epsilon());
    row.parameters[i] = Shrink(row.parameters[i] - m * scaled, scaled, options.l1(), options.l2());
  }
}

// FTRL whose accumulator is Yogi's mean of squares.
void ApplyOnlineYogi(const tpu::OnlineYogiParameters& options, const Row& row) {
  for (size_t i = 0; i < row.size(); ++i) {
    const float g = row.gradient[i];
    float& v = row.slots[0][i];
    float& linear = row.slots[1][i];
    const float before = std::sqrt(v);
    v = YogiMeanOfSquares(v, g, options.beta2());
    const float after = std::sqrt(v);
    linear += g - (after - before) / row.learning_rate * row.parameters[i];
    const float quadratic = after / row.learning_rate + 2 * options.l2();
    row.parameters[i] = std::abs(linear) > options.l1()
                            ? Divide(Sign(linear) * options.l1() - linear, quadratic)
                            : 0;
  }
}

// The parameter is the mean number of steps between two lookups of the row; the learning rate is
// the number of the step. Gradients don't count.
void ApplyFrequencyEstimator(const tpu::FrequencyEstimatorParameters& options, const Row& row) {
  const float step = row.learning_rate;
  for (size_t i = 0; i < row.size(); ++i) {
    float& mean = row.parameters[i];
    float& last_hit_step = row.slots[0][i];
    const float delta = step - last_hit_step;
    const float clipped = std::min(delta, options.max_delta());
    mean = delta >= options.outlier_threshold() * mean
               ? clipped
               : mean * (1 - options.tau()) + clipped * options.tau();
    last_hit_step = step;
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

absl::StatusOr<RowOptimizer> RowOptimizer::Create(const OptimizationParameters& parameters,
                                                  int64_t width) {
  if (!IsSupported(parameters.parameters_case())) {
    return absl::UnimplementedError(absl::StrCat(
        "The embedding optimizer ",
        tpu::GetOptimizationAlgorithmFriendlyName(parameters.parameters_case()),
        " is not supported on virtual TPUs. Supported are Adadelta, Adagrad (also bounded, "
        "frequency-aware, proximal or with momentum), Adam, Assign, the frequency estimator, FTRL, "
        "Lion, Momentum, RMSProp (also centered), stochastic gradient descent, Yogi (online or "
        "proximal) and user-defined programs."));
  }
  RowOptimizer optimizer(parameters, width);
  if (parameters.has_user_defined_program()) {
    const int64_t values = std::max<int64_t>(1, kValuesAtOnce / width) * width;
    TF_ASSIGN_OR_RETURN(optimizer.program_,
                        UpdateProgram::Create(parameters.user_defined_program().program(), values));
  }
  TF_RETURN_IF_ERROR(tpu::UseGradientAccumulation(parameters, &optimizer.accumulates_));
  std::vector<tpu::StateVariableSpecification> states;
  TF_RETURN_IF_ERROR(tpu::GetOptimizationAlgorithmStateVariables(parameters, &states));
  for (size_t i = 1; i < states.size(); ++i) {
    if (states[i].name() != kHiddenSlot) optimizer.slots_.push_back(states[i].name());
  }
  if (optimizer.program_ != nullptr) {
    TF_RETURN_IF_ERROR(optimizer.program_->CheckSlots(optimizer.slots_.size()));
  }
  optimizer.updates_all_rows_ =
      parameters.adam().use_non_lazy_adam() || parameters.lion().use_non_lazy_lion();
  for (const int tag : optimizer.DynamicInputs()) {
    if (tag < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("A dynamic input of the embedding optimizer (its learning rate or its step "
                       "counter) has the tag ",
                       tag, "; tags count up from zero."));
    }
  }
  return optimizer;
}

std::vector<int> RowOptimizer::DynamicInputs() const {
  std::vector<int> tags;
  const auto& rate = parameters_.learning_rate();
  if (rate.has_dynamic()) tags.push_back(rate.dynamic().tag());
  if (parameters_.has_frequency_aware_adagrad()) {
    tags.push_back(parameters_.frequency_aware_adagrad().step_counter().tag());
  }
  return tags;
}

int RowOptimizer::num_dynamic_inputs() const {
  int most = 0;
  for (const int tag : DynamicInputs()) most = std::max(most, tag + 1);
  return most;
}

void RowOptimizer::ApplyToRows(absl::Span<const int64_t> rows, const float* gradients,
                               absl::Span<const float> dynamic_inputs,
                               absl::Span<float* const> tables) const {
  if (program_ != nullptr) {
    ApplyProgramToRows(rows, gradients, dynamic_inputs, tables);
    return;
  }
  absl::InlinedVector<float*, 4> slots(tables.size() - 1);
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t s = 0; s < slots.size(); ++s) slots[s] = tables[s + 1] + rows[i] * width_;
    Apply(absl::MakeConstSpan(gradients + i * width_, width_), dynamic_inputs,
          tables[0] + rows[i] * width_, slots);
  }
}

void RowOptimizer::ApplyProgramToRows(absl::Span<const int64_t> rows, const float* gradients,
                                      absl::Span<const float> dynamic_inputs,
                                      absl::Span<float* const> tables) const {
  const size_t rows_at_once = program_->width() / width_;
  std::vector<std::vector<float>> gathered(tables.size(), std::vector<float>(program_->width()));
  absl::InlinedVector<float*, 4> slots;
  for (size_t t = 1; t < tables.size(); ++t) slots.push_back(gathered[t].data());
  for (size_t first = 0; first < rows.size(); first += rows_at_once) {
    const auto some = rows.subspan(first, rows_at_once);
    for (size_t t = 0; t < tables.size(); ++t) {
      for (size_t i = 0; i < some.size(); ++i) {
        std::copy_n(tables[t] + some[i] * width_, width_, gathered[t].data() + i * width_);
      }
    }
    Apply(absl::MakeConstSpan(gradients + first * width_, some.size() * width_), dynamic_inputs,
          gathered[0].data(), slots);
    for (size_t t = 0; t < tables.size(); ++t) {
      for (size_t i = 0; i < some.size(); ++i) {
        std::copy_n(gathered[t].data() + i * width_, width_, tables[t] + some[i] * width_);
      }
    }
  }
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
  ApplyAlgorithm(gradient, learning_rate, dynamic_inputs, parameters, slots);
  if (parameters_.has_clipping_limits()) {
    for (size_t i = 0; i < gradient.size(); ++i) {
      parameters[i] = Clip(parameters_.clipping_limits(), parameters[i]);
    }
  }
}

void RowOptimizer::ApplyAlgorithm(absl::Span<const float> gradient, float learning_rate,
                                  absl::Span<const float> dynamic_inputs, float* parameters,
                                  absl::Span<float* const> slots) const {
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
    case OptimizationParameters::kBoundedAdagrad:
      return ApplyBoundedAdagrad(parameters_.bounded_adagrad(), row);
    case OptimizationParameters::kFrequencyAwareAdagrad: {
      const auto& options = parameters_.frequency_aware_adagrad();
      return ApplyFrequencyAwareAdagrad(options, dynamic_inputs[options.step_counter().tag()], row);
    }
    case OptimizationParameters::kProximalYogi:
      return ApplyProximalYogi(parameters_.proximal_yogi(), row);
    case OptimizationParameters::kOnlineYogi:
      return ApplyOnlineYogi(parameters_.online_yogi(), row);
    case OptimizationParameters::kFrequencyEstimator:
      return ApplyFrequencyEstimator(parameters_.frequency_estimator(), row);
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
    case OptimizationParameters::kUserDefinedProgram:
      return program_->Apply(gradient, learning_rate, parameters, slots);
    default:  // refused by Create
      return;
  }
}

}  // namespace tf_tpu_ext
