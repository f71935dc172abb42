"""Initializers and regularizers of `tf.contrib.layers`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

Regularizer = Callable[[Any], tf.Tensor]


def xavier_initializer(
    uniform: bool = True, seed: int | None = None, dtype: tf.DType = tf.float32
) -> Any:
    """Returns the initializer of Glorot and Bengio.

    Args:
        uniform: Whether to draw from a uniform distribution; else from a normal one.
        seed: The seed.
        dtype: The type of the values.
    """
    made = (
        tf.compat.v1.glorot_uniform_initializer
        if uniform
        else (tf.compat.v1.glorot_normal_initializer)
    )
    return made(seed=seed, dtype=dtype)


def variance_scaling_initializer(
    factor: float = 2.0,
    mode: str = "FAN_IN",
    uniform: bool = False,
    seed: int | None = None,
    dtype: tf.DType = tf.float32,
) -> Any:
    """Returns an initializer whose variance is `factor` by the number of inputs or outputs.

    Args:
        factor: The factor.
        mode: `"FAN_IN"`, `"FAN_OUT"` or `"FAN_AVG"`.
        uniform: Whether to draw from a uniform distribution; else from a truncated normal one.
        seed: The seed.
        dtype: The type of the values.

    Raises:
        ValueError: `mode` is none of these.
    """
    if mode not in ("FAN_IN", "FAN_OUT", "FAN_AVG"):
        raise ValueError(
            f"variance_scaling_initializer got mode={mode!r}, expected 'FAN_IN', 'FAN_OUT' or "
            "'FAN_AVG'."
        )
    return tf.compat.v1.variance_scaling_initializer(
        scale=factor,
        mode=mode.lower(),
        distribution="uniform" if uniform else "truncated_normal",
        seed=seed,
        dtype=dtype,
    )


def l1_regularizer(scale: float) -> Regularizer:
    """Returns a function that adds up absolute weights, times `scale`."""
    _check_scale("l1_regularizer", scale)
    return lambda weights: scale * tf.reduce_sum(tf.abs(weights))


def l2_regularizer(scale: float) -> Regularizer:
    """Returns a function that adds up squared weights, times half of `scale`."""
    _check_scale("l2_regularizer", scale)
    return lambda weights: scale * tf.nn.l2_loss(weights)


def l1_l2_regularizer(scale_l1: float = 1.0, scale_l2: float = 1.0) -> Regularizer:
    """Returns a function that is the sum of `l1_regularizer` and `l2_regularizer`."""
    first, second = l1_regularizer(scale_l1), l2_regularizer(scale_l2)
    return lambda weights: first(weights) + second(weights)


def flatten(inputs: Any) -> tf.Tensor:
    """Returns `inputs` of shape [batch, ...] as a matrix of shape [batch, values]."""
    inputs = tf.convert_to_tensor(inputs)
    size = inputs.shape[1:].num_elements()
    return tf.reshape(inputs, [inputs.shape[0] or -1, -1 if size is None else size])


def _check_scale(name: str, scale: float) -> None:
    if not isinstance(scale, (int, float)) or scale < 0:
        raise ValueError(f"{name} got scale={scale!r}, expected a number that is not negative.")
