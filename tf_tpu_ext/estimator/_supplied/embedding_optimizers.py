"""Translates embedding table optimizers for the embedding engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
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


@dataclasses.dataclass(frozen=True)
class _Kind:
    """How the engine knows the optimizer of a parameter class.

    Attributes:
        name: That of its field in `OptimizationParameters`, and of its ops.
        slots: By the name of each slot its initial value, or the attribute that has it.
        options: By the name of each of the field's options the attribute that has it.
    """

    name: str
    slots: Mapping[str, float | str] = dataclasses.field(default_factory=dict)
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


_REGULARIZED = {"l1": "l1_regularization_strength", "l2": "l2_regularization_strength"}
_KINDS: dict[type, _Kind] = {
    configs.StochasticGradientDescentParameters: _Kind("stochastic_gradient_descent"),
    configs.AdagradParameters: _Kind("adagrad", {"Adagrad": "initial_accumulator"}),
    configs.AdagradMomentumParameters: _Kind(
        "adagrad_momentum",
        {"AdagradMomentum/Accumulator": 0.0, "AdagradMomentum/Momentum": 0.0},
        _same("momentum", "use_nesterov", "exponent", "beta2", "epsilon"),
    ),
    configs.ProximalAdagradParameters: _Kind(
        "proximal_adagrad", {"ProximalAdagrad": "initial_accumulator"}, _REGULARIZED
    ),
    configs.AdamParameters: _Kind(
        "adam",
        {"Adam/m": 0.0, "Adam/v": 0.0},
        {
            **_same("beta1", "beta2", "epsilon"),
            "use_non_lazy_adam": "non_lazy_adam",
            "use_sum_inside_sqrt": "sum_inside_sqrt",
        },
    ),
    configs.FtrlParameters: _Kind(
        "ftrl",
        {"Ftrl": "initial_accumulator_value", "Ftrl_1": 0.0},
        {
            **_REGULARIZED,
            "lr_power": "learning_rate_power",
            "beta": "beta",
            "multiply_linear_by_lr": "multiply_linear_by_learning_rate",
        },
    ),
    configs.ProximalYogiParameters: _Kind(
        "proximal_yogi",
        {"ProximalYogi": "initial_accumulator_value", "ProximalYogi_1": 0.0},
        {**_REGULARIZED, **_same("beta1", "beta2", "epsilon")},
    ),
    configs.FrequencyEstimatorParameters: _Kind(
        "frequency_estimator",
        {"FrequencyEstimator": 0.0},
        _same("tau", "max_delta", "outlier_threshold", "weight_exponent"),
    ),
    configs.MomentumParameters: _Kind(
        "momentum", {"Momentum": 0.0}, _same("momentum", "use_nesterov")
    ),
    configs.RMSPropParameters: _Kind(
        "rms_prop",
        {"RMSProp/ms": 0.0, "RMSProp/mom": 0.0},
        _same("rho", "momentum", "epsilon"),
    ),
}


def _kind_of(parameters: Any) -> _Kind:
    for parameter_class, kind in _KINDS.items():
        if isinstance(parameters, parameter_class):
            return kind
    raise ValueError(
        "Expected parameters of one of tpu_embedding's optimizers, as AdagradParameters. "
        f"Received: optimization_parameters={parameters!r} (of type {type(parameters).__name__})"
    )


def engine_optimizer(parameters: Any) -> EngineOptimizer:
    """Returns the engine's optimizer for an instance of one of the parameter classes.

    Raises:
        ValueError: The engine has no such optimizer.
    """
    kind = _kind_of(parameters)
    return EngineOptimizer(
        getattr(tpu_ops, f"load_tpu_embedding_{kind.name}_parameters"),
        getattr(tpu_ops, f"retrieve_tpu_embedding_{kind.name}_parameters"),
        tuple(
            (slot, getattr(parameters, start) if isinstance(start, str) else start)
            for slot, start in kind.slots.items()
        ),
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
    kind = _kind_of(parameters)
    field = getattr(described, kind.name)
    field.SetInParent()
    for option, attribute in kind.options.items():
        setattr(field, option, getattr(parameters, attribute))
