"""Translates embedding table optimizers for the embedding engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tensorflow.python.tpu.ops import tpu_ops

from tf_tpu_ext.estimator._supplied import embedding_configs as configs


@dataclasses.dataclass(frozen=True)
class EngineOptimizer:
    """The engine's ops and slot variables for an optimizer.

    Attributes:
        load: The op that loads a table and its slots.
        retrieve: The op that retrieves them.
        slots: The name of each slot, under that of the table's variable, and its initial value.
    """

    load: Callable[..., Any]
    retrieve: Callable[..., Any]
    slots: tuple[tuple[str, float], ...] = ()


def engine_optimizer(parameters: Any) -> EngineOptimizer:
    """Returns the engine's optimizer for an instance of one of the parameter classes.

    Raises:
        ValueError: The engine has no such optimizer.
    """
    if isinstance(parameters, configs.StochasticGradientDescentParameters):
        return _optimizer("stochastic_gradient_descent")
    if isinstance(parameters, configs.AdagradParameters):
        return _optimizer("adagrad", ("Adagrad", parameters.initial_accumulator))
    if isinstance(parameters, configs.AdagradMomentumParameters):
        accumulator, momenta = "AdagradMomentum/Accumulator", "AdagradMomentum/Momentum"
        return _optimizer("adagrad_momentum", (accumulator, 0.0), (momenta, 0.0))
    if isinstance(parameters, configs.ProximalAdagradParameters):
        start = parameters.initial_accumulator
        return _optimizer("proximal_adagrad", ("ProximalAdagrad", start))
    if isinstance(parameters, configs.AdamParameters):
        return _optimizer("adam", ("Adam/m", 0.0), ("Adam/v", 0.0))
    if isinstance(parameters, configs.FtrlParameters):
        start = parameters.initial_accumulator_value
        return _optimizer("ftrl", ("Ftrl", start), ("Ftrl_1", 0.0))
    if isinstance(parameters, configs.ProximalYogiParameters):
        start = parameters.initial_accumulator_value
        return _optimizer("proximal_yogi", ("ProximalYogi", start), ("ProximalYogi_1", 0.0))
    if isinstance(parameters, configs.FrequencyEstimatorParameters):
        return _optimizer("frequency_estimator", ("FrequencyEstimator", 0.0))
    if isinstance(parameters, configs.MomentumParameters):
        return _optimizer("momentum", ("Momentum", 0.0))
    if isinstance(parameters, configs.RMSPropParameters):
        return _optimizer("rms_prop", ("RMSProp/ms", 0.0), ("RMSProp/mom", 0.0))
    raise ValueError(
        "Expected parameters of one of tpu_embedding's optimizers, as AdagradParameters. "
        f"Received: optimization_parameters={parameters!r} (of type {type(parameters).__name__})"
    )


def _optimizer(name: str, *slots: tuple[str, float]) -> EngineOptimizer:
    return EngineOptimizer(
        getattr(tpu_ops, f"load_tpu_embedding_{name}_parameters"),
        getattr(tpu_ops, f"retrieve_tpu_embedding_{name}_parameters"),
        slots,
    )


def describe(parameters: Any, described: Any) -> None:
    """Writes all parameters except the learning rate into an `OptimizationParameters`."""
    status = type(described)().DESCRIPTOR.fields_by_name["gradient_accumulation_status"]
    name = "ENABLED" if parameters.use_gradient_accumulation else "DISABLED"
    described.gradient_accumulation_status = status.enum_type.values_by_name[name].number
    for limits, low, high in (
        ("clipping_limits", parameters.clip_weight_min, parameters.clip_weight_max),
        ("gradient_clipping_limits", parameters.clip_gradient_min, parameters.clip_gradient_max),
    ):
        if low is not None:
            getattr(described, limits).lower.value = low
        if high is not None:
            getattr(described, limits).upper.value = high
    if parameters.weight_decay_factor:
        described.weight_decay_factor = parameters.weight_decay_factor
        described.multiply_weight_decay_factor_by_learning_rate = bool(
            parameters.multiply_weight_decay_factor_by_learning_rate
        )
    if isinstance(parameters, configs.StochasticGradientDescentParameters):
        described.stochastic_gradient_descent.SetInParent()
    elif isinstance(parameters, configs.AdagradParameters):
        described.adagrad.SetInParent()
    elif isinstance(parameters, configs.AdagradMomentumParameters):
        described.adagrad_momentum.momentum = parameters.momentum
        described.adagrad_momentum.use_nesterov = parameters.use_nesterov
        described.adagrad_momentum.exponent = parameters.exponent
        described.adagrad_momentum.beta2 = parameters.beta2
        described.adagrad_momentum.epsilon = parameters.epsilon
    elif isinstance(parameters, configs.ProximalAdagradParameters):
        described.proximal_adagrad.SetInParent()
        described.proximal_adagrad.l1 = parameters.l1_regularization_strength
        described.proximal_adagrad.l2 = parameters.l2_regularization_strength
    elif isinstance(parameters, configs.AdamParameters):
        described.adam.beta1 = parameters.beta1
        described.adam.beta2 = parameters.beta2
        described.adam.epsilon = parameters.epsilon
        described.adam.use_non_lazy_adam = not parameters.lazy_adam
        described.adam.use_sum_inside_sqrt = parameters.sum_inside_sqrt
    elif isinstance(parameters, configs.FtrlParameters):
        described.ftrl.l1 = parameters.l1_regularization_strength
        described.ftrl.l2 = parameters.l2_regularization_strength
        described.ftrl.lr_power = parameters.learning_rate_power
        described.ftrl.beta = parameters.beta
        described.ftrl.multiply_linear_by_lr = parameters.multiply_linear_by_learning_rate
    elif isinstance(parameters, configs.ProximalYogiParameters):
        described.proximal_yogi.beta1 = parameters.beta1
        described.proximal_yogi.beta2 = parameters.beta2
        described.proximal_yogi.epsilon = parameters.epsilon
        described.proximal_yogi.l1 = parameters.l1_regularization_strength
        described.proximal_yogi.l2 = parameters.l2_regularization_strength
    elif isinstance(parameters, configs.FrequencyEstimatorParameters):
        described.frequency_estimator.tau = parameters.tau
        described.frequency_estimator.max_delta = parameters.max_delta
        described.frequency_estimator.outlier_threshold = parameters.outlier_threshold
        described.frequency_estimator.weight_exponent = parameters.weight_exponent
    elif isinstance(parameters, configs.MomentumParameters):
        described.momentum.momentum = parameters.momentum
        described.momentum.use_nesterov = parameters.use_nesterov
    elif isinstance(parameters, configs.RMSPropParameters):
        described.rms_prop.rho = parameters.rho
        described.rms_prop.momentum = parameters.momentum
        described.rms_prop.epsilon = parameters.epsilon
