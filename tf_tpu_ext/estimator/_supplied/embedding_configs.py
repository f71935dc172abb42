"""Configurations of embedding tables, features and optimizers for `tpu_embedding`.

Programs also use these classes on a CPU, where the tables are ordinary variables.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

AdagradSlotVariableNames = collections.namedtuple("AdagradSlotVariableNames", ["accumulator"])
AdagradMomentumSlotVariableNames = collections.namedtuple(
    "AdagradMomentumSlotVariableNames", ["accumulator", "momenta"]
)
AdamSlotVariableNames = collections.namedtuple("AdamSlotVariableNames", ["m", "v"])
FrequencyEstimatorSlotVariableNames = collections.namedtuple(
    "FrequencyEstimatorSlotVariableNames", ["last_hit_step"]
)
FtrlSlotVariableNames = collections.namedtuple("FtrlSlotVariableNames", ["accumulator", "linear"])
MomentumSlotVariableNames = collections.namedtuple("MomentumSlotVariableNames", ["momenta"])
RMSPropSlotVariableNames = collections.namedtuple("RMSPropSlotVariableNames", ["ms", "mom"])
ProximalAdagradSlotVariableNames = collections.namedtuple(
    "ProximalAdagradSlotVariableNames", ["accumulator"]
)
ProximalYogiSlotVariableNames = collections.namedtuple("ProximalYogiSlotVariableNames", ["v", "m"])


def _check_positive(owner: object, **values: float | None) -> None:
    for name, value in values.items():
        if value is not None and value <= 0:
            raise ValueError(
                f"`{name}` of {type(owner).__name__} must be positive. Received: {name}={value!r}"
            )


def _check_decay(owner: object, **values: float) -> None:
    for name, value in values.items():
        if not 0 <= value < 1:
            raise ValueError(
                f"`{name}` of {type(owner).__name__} must be in [0, 1). Received: {name}={value!r}"
            )


def _check_not_negative(owner: object, **values: float) -> None:
    for name, value in values.items():
        if value < 0:
            raise ValueError(
                f"`{name}` of {type(owner).__name__} must not be negative. "
                f"Received: {name}={value!r}"
            )


@dataclasses.dataclass(frozen=True)
class TableConfig:
    """An embedding table: `vocabulary_size` rows of `dimension` numbers."""

    vocabulary_size: int
    dimension: int
    initializer: Any = None
    combiner: str | None = "mean"
    hot_id_replication: bool = False
    learning_rate: float | None = None
    learning_rate_fn: Callable[..., Any] | None = None
    optimization_parameters: Any = None

    def __post_init__(self) -> None:
        for name in ("vocabulary_size", "dimension"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(
                    f"`{name}` of a table must be a positive int. Received: {name}={value!r}"
                )
        if self.initializer is not None and not callable(self.initializer):
            raise ValueError(
                "`initializer` of a table must be callable or None. "
                f"Received: initializer={self.initializer!r}"
            )
        if self.combiner not in ("mean", "sum", "sqrtn", None):
            raise ValueError(
                "`combiner` of a table must be 'mean', 'sum', 'sqrtn' or None. "
                f"Received: combiner={self.combiner!r}"
            )
        if self.learning_rate is not None and self.learning_rate_fn is not None:
            raise ValueError(
                "A table takes a `learning_rate` or a `learning_rate_fn`. Received: both."
            )


@dataclasses.dataclass(frozen=True)
class FeatureConfig:
    """A feature and its table. It is a sequence if `max_sequence_length` is not 0."""

    table_id: str
    max_sequence_length: int = 0
    weight_key: str | None = None


@dataclasses.dataclass(frozen=True)
class EnqueueData:
    """A feature's ids in a core's batch, with rows and weights if it is sparse."""

    embedding_indices: Any
    sample_indices: Any = None
    aggregation_weights: Any = None

    @staticmethod
    def from_sparse_tensor(sp_tensor: Any, weights: Any = None) -> EnqueueData:
        """Unpacks a SparseTensor of ids, and optionally one of weights with the same indices."""
        return EnqueueData(
            sp_tensor.values,
            sp_tensor.indices,
            None if weights is None else weights.values,
        )


@dataclasses.dataclass(frozen=True)
class _Parameters:
    """Parameters that all optimizers have."""

    learning_rate: float
    use_gradient_accumulation: bool = dataclasses.field(default=True, kw_only=True)
    clip_weight_min: float | None = dataclasses.field(default=None, kw_only=True)
    clip_weight_max: float | None = dataclasses.field(default=None, kw_only=True)
    weight_decay_factor: float | None = dataclasses.field(default=None, kw_only=True)
    multiply_weight_decay_factor_by_learning_rate: bool | None = dataclasses.field(
        default=None, kw_only=True
    )
    clip_gradient_min: float | None = dataclasses.field(default=None, kw_only=True)
    clip_gradient_max: float | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        clips = self.clip_gradient_min is not None or self.clip_gradient_max is not None
        if clips and not self.use_gradient_accumulation:
            raise ValueError(
                f"{type(self).__name__} clips accumulated gradients only. Received: "
                f"clip_gradient_min={self.clip_gradient_min!r}, "
                f"clip_gradient_max={self.clip_gradient_max!r}, use_gradient_accumulation=False. "
                "Set use_gradient_accumulation=True."
            )


@dataclasses.dataclass(frozen=True)
class StochasticGradientDescentParameters(_Parameters):
    """Plain gradient descent."""


@dataclasses.dataclass(frozen=True)
class AdagradParameters(_Parameters):
    """Adagrad."""

    initial_accumulator: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_positive(self, initial_accumulator=self.initial_accumulator)


@dataclasses.dataclass(frozen=True)
class AdagradMomentumParameters(_Parameters):
    """Adagrad with momentum."""

    momentum: float
    use_nesterov: bool = False
    exponent: float = 2.0
    beta2: float = 1.0
    epsilon: float = 1e-10

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_positive(self, epsilon=self.epsilon)
        _check_not_negative(self, momentum=self.momentum)
        if self.exponent <= 0 or not 0 < self.beta2 <= 1:
            raise ValueError(
                "AdagradMomentumParameters needs a positive `exponent` and a `beta2` in (0, 1]. "
                f"Received: exponent={self.exponent!r}, beta2={self.beta2!r}"
            )


@dataclasses.dataclass(frozen=True)
class ProximalAdagradParameters(_Parameters):
    """Adagrad with L1 and L2 regularization."""

    initial_accumulator: float = 0.1
    l1_regularization_strength: float = 0.0
    l2_regularization_strength: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_positive(self, initial_accumulator=self.initial_accumulator)
        _check_not_negative(
            self,
            l1_regularization_strength=self.l1_regularization_strength,
            l2_regularization_strength=self.l2_regularization_strength,
        )


@dataclasses.dataclass(frozen=True)
class AdamParameters(_Parameters):
    """Adam. With `lazy_adam`, a step changes only rows that are looked up."""

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-08
    lazy_adam: bool = True
    sum_inside_sqrt: bool = True

    @property
    def non_lazy_adam(self) -> bool:
        """Whether a step changes all rows."""
        return not self.lazy_adam

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_positive(self, epsilon=self.epsilon)
        _check_decay(self, beta1=self.beta1, beta2=self.beta2)
        if not self.lazy_adam and not self.use_gradient_accumulation:
            raise ValueError(
                "AdamParameters without lazy_adam needs accumulated gradients. Received: "
                "lazy_adam=False, use_gradient_accumulation=False. Set one of them to True."
            )


@dataclasses.dataclass(frozen=True)
class FtrlParameters(_Parameters):
    """Follow the regularized leader."""

    learning_rate_power: float = -0.5
    initial_accumulator_value: float = 0.1
    l1_regularization_strength: float = 0.0
    l2_regularization_strength: float = 0.0
    multiply_linear_by_learning_rate: bool = dataclasses.field(default=False, kw_only=True)
    beta: float = dataclasses.field(default=0.0, kw_only=True)
    allow_zero_accumulator: bool = dataclasses.field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.learning_rate_power > 0:
            raise ValueError(
                "`learning_rate_power` of FtrlParameters must not be positive. "
                f"Received: learning_rate_power={self.learning_rate_power!r}"
            )
        _check_not_negative(
            self,
            initial_accumulator_value=self.initial_accumulator_value,
            l1_regularization_strength=self.l1_regularization_strength,
            l2_regularization_strength=self.l2_regularization_strength,
        )


@dataclasses.dataclass(frozen=True)
class ProximalYogiParameters(_Parameters):
    """Yogi with L1 and L2 regularization."""

    learning_rate: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-3
    l1_regularization_strength: float = 0.0
    l2_regularization_strength: float = 0.0
    initial_accumulator_value: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_positive(self, epsilon=self.epsilon)
        _check_decay(self, beta1=self.beta1, beta2=self.beta2)
        _check_not_negative(
            self,
            initial_accumulator_value=self.initial_accumulator_value,
            l1_regularization_strength=self.l1_regularization_strength,
            l2_regularization_strength=self.l2_regularization_strength,
        )


@dataclasses.dataclass(frozen=True)
class FrequencyEstimatorParameters(_Parameters):
    """Estimates how many steps lie between two lookups of a row, instead of training the row.

    For tables of dimension 1 whose `learning_rate_fn` returns the global step.
    """

    learning_rate: float = dataclasses.field(default=1.0, init=False)
    tau: float
    max_delta: float
    outlier_threshold: float
    weight_exponent: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.tau < 1:
            raise ValueError(
                "`tau` of FrequencyEstimatorParameters must be in (0, 1). "
                f"Received: tau={self.tau!r}"
            )
        _check_positive(self, max_delta=self.max_delta, outlier_threshold=self.outlier_threshold)


@dataclasses.dataclass(frozen=True)
class MomentumParameters(_Parameters):
    """Gradient descent with momentum."""

    momentum: float
    use_nesterov: bool = False


@dataclasses.dataclass(frozen=True)
class RMSPropParameters(_Parameters):
    """RMSProp."""

    rho: float
    momentum: float
    epsilon: float
