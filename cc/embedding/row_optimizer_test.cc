#include "cc/embedding/row_optimizer.h"

#include <cmath>
#include <string>
#include <vector>

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::tpu::OptimizationParameters;

OptimizationParameters Parse(const std::string& text) {
  OptimizationParameters parameters;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &parameters)) << text;
  return parameters;
}

// The values of one parameter and then its slots, after one update.
std::vector<float> Update(const std::string& text, float gradient, std::vector<float> state,
                          const std::vector<float>& dynamic_inputs = {}) {
  auto optimizer = RowOptimizer::Create(Parse(text), 1);
  EXPECT_TRUE(optimizer.ok()) << optimizer.status();
  EXPECT_EQ(optimizer->slots().size() + 1, state.size());
  std::vector<float*> slots;
  for (size_t i = 1; i < state.size(); ++i) slots.push_back(&state[i]);
  optimizer->Apply({gradient}, dynamic_inputs, &state[0], slots);
  return state;
}

void ExpectNear(const std::vector<float>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-5) << i;
}

TEST(RowOptimizerTest, GradientDescent) {
  const std::string sgd = "stochastic_gradient_descent {} learning_rate { constant: 0.5 }";
  ExpectNear(Update(sgd, 3, {2}), {0.5});
}

TEST(RowOptimizerTest, TakesTheDynamicRateOfItsTag) {
  const std::string sgd = "stochastic_gradient_descent {} learning_rate { dynamic { tag: 1 } }";
  ExpectNear(Update(sgd, 3, {2}, {100, 0.25}), {1.25});
  EXPECT_EQ(RowOptimizer::Create(Parse(sgd), 1)->num_dynamic_inputs(), 2);
}

TEST(RowOptimizerTest, ClipsGradientsAndThenParameters) {
  ExpectNear(Update("stochastic_gradient_descent {} learning_rate { constant: 1 }"
                    "gradient_clipping_limits { lower { value: -1 } upper { value: 1 } }",
                    3, {2}),
             {1});
  ExpectNear(Update("stochastic_gradient_descent {} learning_rate { constant: 1 }"
                    "clipping_limits { lower { value: 0.5 } }",
                    3, {2}),
             {0.5});
}

TEST(RowOptimizerTest, DecaysBeforeTheUpdate) {
  ExpectNear(Update("stochastic_gradient_descent {} learning_rate { constant: 0.5 }"
                    "weight_decay_factor: 0.1",
                    1, {2}),
             {1.3});
  ExpectNear(Update("stochastic_gradient_descent {} learning_rate { constant: 0.5 }"
                    "weight_decay_factor: 0.1 multiply_weight_decay_factor_by_learning_rate: true",
                    1, {2}),
             {1.4});
}

TEST(RowOptimizerTest, Adagrad) {
  const std::string adagrad = "adagrad {} learning_rate { constant: 0.5 }";
  ExpectNear(Update(adagrad, 2, {1, 0.5}), {1 - 0.5 * 2 / std::sqrt(4.5), 4.5});
  ExpectNear(Update(adagrad, 0, {1, 0}), {1, 0});
}

TEST(RowOptimizerTest, AdagradWithMomentum) {
  const double accumulator = 0.9 * 0.5 + 0.1 * 4;
  const double scaled = 2 * std::pow(accumulator + 0.1, -1 / 3.0);
  const double momentum = 0.8 * 0.25 + scaled;
  const std::string options =
      "adagrad_momentum { momentum: 0.8 exponent: 3 beta2: 0.9 epsilon: 0.1 use_nesterov: ";
  ExpectNear(Update(options + "false } learning_rate { constant: 0.5 }", 2, {1, 0.5, 0.25}),
             {1 - 0.5 * momentum, accumulator, momentum});
  ExpectNear(Update(options + "true } learning_rate { constant: 0.5 }", 2, {1, 0.5, 0.25}),
             {1 - 0.5 * (0.8 * momentum + scaled), accumulator, momentum});
}

TEST(RowOptimizerTest, Adam) {
  const double m = 0.9 * 0.1 + 0.1 * 2, v = 0.99 * 0.2 + 0.01 * 4;
  const std::string options = "adam { beta1: 0.9 beta2: 0.99 epsilon: 0.1 ";
  ExpectNear(Update(options + "} learning_rate { constant: 0.5 }", 2, {1, 0.1, 0.2}),
             {1 - 0.5 * m / (std::sqrt(v) + 0.1), m, v});
  ExpectNear(Update(options + "use_sum_inside_sqrt: true } learning_rate { constant: 0.5 }", 2,
                    {1, 0.1, 0.2}),
             {1 - 0.5 * m / std::sqrt(v + 0.01), m, v});
  EXPECT_FALSE(RowOptimizer::Create(Parse(options + "}"), 1)->updates_all_rows());
  EXPECT_TRUE(
      RowOptimizer::Create(Parse(options + "use_non_lazy_adam: true }"), 1)->updates_all_rows());
}

TEST(RowOptimizerTest, FtrlHasTheSameParametersWithScaledLinears) {
  const double before = std::sqrt(0.5), after = std::sqrt(4.5);
  const double linear = 0.3 + 2 - (after - before) / 0.5 * 1;
  const double l2 = 0.2 + 0.4 / (2 * 0.5);
  const double expected = ((linear > 0 ? 0.1 : -0.1) - linear) / (after / 0.5 + 2 * l2);
  const std::string options = "ftrl { l1: 0.1 l2: 0.2 lr_power: -0.5 beta: 0.4 ";
  ExpectNear(Update(options + "} learning_rate { constant: 0.5 }", 2, {1, 0.5, 0.3}),
             {expected, 4.5, linear});
  ExpectNear(Update(options + "multiply_linear_by_lr: true } learning_rate { constant: 0.5 }", 2,
                    {1, 0.5, 0.15}),
             {expected, 4.5, linear * 0.5});
}

TEST(RowOptimizerTest, Momentum) {
  const double momentum = 0.9 * 0.5 + 2;
  ExpectNear(Update("momentum { momentum: 0.9 } learning_rate { constant: 0.5 }", 2, {1, 0.5}),
             {1 - 0.5 * momentum, momentum});
  ExpectNear(Update("momentum { momentum: 0.9 use_nesterov: true } learning_rate { constant: 0.5 }",
                    2, {1, 0.5}),
             {1 - 0.5 * (2 + 0.9 * momentum), momentum});
}

TEST(RowOptimizerTest, Lion) {
  ExpectNear(
      Update("lion { beta1: 0.9 beta2: 0.99 } learning_rate { constant: 0.5 }", 2, {1, -0.5}),
      {1.5, 0.99 * -0.5 + 0.01 * 2});
}

TEST(RowOptimizerTest, RmsProp) {
  const double square = 0.9 * 0.5 + 0.1 * 4;
  const double momentum = 0.8 * 0.25 + 0.5 * 2 / std::sqrt(square + 0.1);
  ExpectNear(Update("rms_prop { rho: 0.9 momentum: 0.8 epsilon: 0.1 }"
                    "learning_rate { constant: 0.5 }",
                    2, {1, 0.5, 0.25}),
             {1 - momentum, square, momentum});
  const double mean = 0.9 * 0.2 + 0.1 * 2;
  const double centered = 0.8 * 0.25 + 0.5 * 2 / std::sqrt(square - mean * mean + 0.1);
  ExpectNear(Update("centered_rms_prop { rho: 0.9 momentum: 0.8 epsilon: 0.1 }"
                    "learning_rate { constant: 0.5 }",
                    2, {1, 0.5, 0.25, 0.2}),
             {1 - centered, square, centered, mean});
}

TEST(RowOptimizerTest, Adadelta) {
  const double square = 0.9 * 0.5 + 0.1 * 4;
  const double update = std::sqrt(0.25 + 0.1) / std::sqrt(square + 0.1) * 2;
  ExpectNear(Update("adadelta { rho: 0.9 epsilon: 0.1 } learning_rate { constant: 0.5 }", 2,
                    {1, 0.5, 0.25}),
             {1 - 0.5 * update, square, 0.9 * 0.25 + 0.1 * update * update});
}

TEST(RowOptimizerTest, ProximalAdagrad) {
  const double scaled = 0.5 / std::sqrt(4.5);
  const double moved = 1 - 2 * scaled;
  ExpectNear(
      Update("proximal_adagrad { l1: 0.1 l2: 0.2 } learning_rate { constant: 0.5 }", 2, {1, 0.5}),
      {(moved - scaled * 0.1) / (1 + 0.2 * scaled), 4.5});
}

TEST(RowOptimizerTest, BoundedAdagrad) {
  const std::string rate = "} learning_rate { constant: 0.5 }";
  ExpectNear(Update("bounded_adagrad { " + rate, 2, {1, 0.25}), {1 - 0.5 * 2 / 0.5, 4.25});
  ExpectNear(Update("bounded_adagrad { update_accumulator_first: true " + rate, 2, {1, 0.25}),
             {1 - 0.5 * 2 / std::sqrt(4.25), 4.25});
  ExpectNear(
      Update("bounded_adagrad { max_var_update: 0.75 max_accumulator: 3 " + rate, -2, {1, 0.25}),
      {1.75, 3});
}

TEST(RowOptimizerTest, FrequencyAwareAdagrad) {
  const std::string options =
      "learning_rate { dynamic { tag: 1 } } frequency_aware_adagrad { probability_exponent: 0.5 "
      "accumulator_decay: 0.9 initial_accumulator_value: 0.1 step_counter { tag: 2 } "
      "l1_regularization_strength: 0.25 l2_regularization_strength: 0.125 max_lr_multiplier: ";
  const double accumulator = 0.9 * 0.5 + 4;
  const double update = 2 / std::sqrt(accumulator) - 0.25 - 0.125;
  // Updated for the 4th time in 36 steps.
  ExpectNear(Update(options + "10 }", 2, {-1, 0.5, 3}, {100, 0.5, 36}),
             {-1 - 0.5 * 3 * update, accumulator, 4});
  ExpectNear(Update(options + "2 }", 2, {-1, 0.5, 3}, {100, 0.5, 36}),
             {-1 - 0.5 * 2 * update, accumulator, 4});
  EXPECT_EQ(RowOptimizer::Create(Parse(options + "2 }"), 1)->num_dynamic_inputs(), 3);
  // The accumulator does not fall below its initial value.
  ExpectNear(Update("learning_rate { constant: 0.5 } frequency_aware_adagrad { "
                    "accumulator_decay: 0.1 initial_accumulator_value: 0.25 max_lr_multiplier: 9 }",
                    0, {1, 0.5, 0}, {1}),
             {1, 0.25, 1});
}

TEST(RowOptimizerTest, ProximalYogi) {
  const std::string options = "proximal_yogi { beta1: 0.9 beta2: 0.75 epsilon: 0.1 ";
  const double v = 0.5 + 0.25 * 4, m = 0.9 * 0.25 + 0.1 * 2;
  const double scaled = 0.5 / (std::sqrt(v) + 0.1);
  ExpectNear(Update(options + "} learning_rate { constant: 0.5 }", 2, {1, 0.5, 0.25}),
             {1 - m * scaled, v, m});
  ExpectNear(
      Update(options + "l1: 0.1 l2: 0.2 } learning_rate { constant: 0.5 }", 2, {1, 0.5, 0.25}),
      {(1 - m * scaled - 0.1 * scaled) / (1 + 0.2 * scaled), v, m});
  // Above the square, the mean falls by as much as it would rise.
  EXPECT_FLOAT_EQ(Update(options + "} learning_rate { constant: 0.5 }", 2, {1, 9, 0})[1], 8);
}

TEST(RowOptimizerTest, OnlineYogi) {
  const double v = 0.5 + 0.25 * 4;
  const double linear = 0.3 + 2 - (std::sqrt(v) - std::sqrt(0.5)) / 0.5 * 1;
  ExpectNear(Update("online_yogi { beta2: 0.75 l1: 0.1 l2: 0.2 } learning_rate { constant: 0.5 }",
                    2, {1, 0.5, 0.3}),
             {(0.1 - linear) / (std::sqrt(v) / 0.5 + 2 * 0.2), v, linear});
  EXPECT_EQ(Update("online_yogi { beta2: 0.75 l1: 5 } learning_rate { constant: 0.5 }", 2,
                   {1, 0.5, 0.3})[0],
            0);
}

TEST(RowOptimizerTest, FrequencyEstimator) {
  const std::string options =
      "learning_rate { dynamic { tag: 0 } } frequency_estimator { tau: 0.25 max_delta: 100 "
      "outlier_threshold: 3 }";
  // Looked up at step 10 and again at step 18, every 4 steps before; the gradient has no part.
  ExpectNear(Update(options, 7, {4, 10}, {18}), {4 * 0.75 + 8 * 0.25, 18});
  // Three times as long as the mean or longer is an outlier, which replaces the mean.
  ExpectNear(Update(options, 0, {4, 10}, {22}), {12, 22});
  ExpectNear(Update(options, 0, {4, 10}, {500}), {100, 500});
}

TEST(RowOptimizerTest, AssignsTheGradient) {
  ExpectNear(Update("assign {} learning_rate { constant: 0.5 }", 2, {1}), {2});
}

TEST(RowOptimizerTest, AccumulatesUnlessToldNotTo) {
  EXPECT_TRUE(RowOptimizer::Create(Parse("adagrad {}"), 1)->accumulates());
  EXPECT_FALSE(RowOptimizer::Create(Parse("adagrad {} gradient_accumulation_status: DISABLED"), 1)
                   ->accumulates());
}

TEST(RowOptimizerTest, NamesWhatItDoesNotSupport) {
  for (const char* text : {"", "mdl_adagrad_light {}"}) {
    const auto optimizer = RowOptimizer::Create(Parse(text), 1);
    EXPECT_EQ(optimizer.status().code(), absl::StatusCode::kUnimplemented) << text;
    EXPECT_NE(optimizer.status().message().find("Supported are"), std::string::npos);
  }
}

TEST(RowOptimizerTest, RefusesAnEmptyProgram) {
  const auto optimizer = RowOptimizer::Create(Parse("user_defined_program {}"), 1);
  EXPECT_EQ(optimizer.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(RowOptimizerTest, RefusesNegativeTags) {
  for (const char* text : {"adagrad {} learning_rate { dynamic { tag: -2 } }",
                           "frequency_aware_adagrad { step_counter { tag: -1 } }"}) {
    const auto optimizer = RowOptimizer::Create(Parse(text), 1);
    EXPECT_EQ(optimizer.status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace tf_tpu_ext
