"""Initializers, regularizers and functions of `tf.contrib.layers`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def layer_norm(
    inputs: tf.Tensor,
    center: bool = True,
    scale: bool = True,
    activation_fn: Callable[[tf.Tensor], tf.Tensor] | None = None,
    reuse: bool | None = None,
    variables_collections: Sequence[str] | None = None,
    outputs_collections: str | Sequence[str] | None = None,
    trainable: bool = True,
    begin_norm_axis: int = 1,
    begin_params_axis: int = -1,
    scope: Any = None,
) -> tf.Tensor:
    """Normalizes each example to mean 0 and variance 1, then scales and shifts it.

    Args:
        inputs: Numbers of shape `[batch, ...]`.
        center: Whether to add the variable `beta`.
        scale: Whether to multiply by the variable `gamma`.
        activation_fn: A function that is applied to the result.
        reuse: Whether to take variables that exist.
        variables_collections: Names of collections that the variables join.
        outputs_collections: Names of collections that the result joins.
        trainable: Whether the variables are trained.
        begin_norm_axis: Mean and variance are taken over this axis and those behind it.
        begin_params_axis: The variables have the shape of this axis and those behind it.
        scope: The variable scope, `"LayerNorm"` if None.

    Returns:
        A tensor of the shape and type of `inputs`.

    Raises:
        ValueError: An axis does not exist, or its size is not known.
    """
    v1 = tf.compat.v1
    with v1.variable_scope(scope, "LayerNorm", [inputs], reuse=reuse):
        inputs = tf.convert_to_tensor(inputs)
        rank = inputs.shape.rank
        axes = {"begin_norm_axis": begin_norm_axis, "begin_params_axis": begin_params_axis}
        for name, axis in axes.items():
            if rank is None or not -rank <= axis < rank:
                raise ValueError(
                    f"`{name}` of layer_norm must be an axis of `inputs`. Received: "
                    f"{name}={axis}, inputs of shape {inputs.shape}"
                )
        shape = inputs.shape.as_list()[begin_params_axis % rank :]
        if None in shape:
            raise ValueError(
                "layer_norm needs a known size of the axes from `begin_params_axis` on. Received: "
                f"begin_params_axis={begin_params_axis}, inputs of shape {inputs.shape}"
            )
        parameters: dict[str, Any] = {}
        initializers = {"beta": v1.zeros_initializer(), "gamma": v1.ones_initializer()}
        for name in [*(["beta"] if center else []), *(["gamma"] if scale else [])]:
            collections = [v1.GraphKeys.GLOBAL_VARIABLES, *(variables_collections or [])]
            parameters[name] = v1.get_variable(
                name,
                shape,
                inputs.dtype,
                initializer=initializers[name],
                collections=collections,
                trainable=trainable,
            )
        mean, variance = tf.nn.moments(
            inputs, list(range(begin_norm_axis % rank, rank)), keepdims=True
        )
        # Small half precision numbers would vanish.
        epsilon = 1e-3 if inputs.dtype == tf.float16 else 1e-12
        outputs = tf.nn.batch_normalization(
            inputs, mean, variance, parameters.get("beta"), parameters.get("gamma"), epsilon
        )
        outputs = tf.ensure_shape(outputs, inputs.shape)
        if activation_fn is not None:
            outputs = activation_fn(outputs)
        names = [outputs_collections] if isinstance(outputs_collections, str) else None
        for name in names or outputs_collections or []:
            v1.add_to_collection(name, outputs)
        return outputs
