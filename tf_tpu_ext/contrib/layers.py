"""Initializers, regularizers and functions from `tf.contrib.layers`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

Regularizer = Callable[[Any], tf.Tensor]


def xavier_initializer(
    uniform: bool = True, seed: int | None = None, dtype: tf.DType = tf.float32
) -> Any:
    """Returns Glorot and Bengio's initializer.

    Args:
        uniform: Whether to draw from a uniform rather than a truncated normal distribution.
        seed: The seed.
        dtype: The type of the values.

    Example:
        >>> weights = xavier_initializer(seed=1)([30, 20])
        >>> bool(tf.reduce_max(tf.abs(weights)) <= (6 / (30 + 20)) ** 0.5)
        True

    Today: https://www.tensorflow.org/api_docs/python/tf/compat/v1/keras/initializers/glorot_uniform
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
    """Returns an initializer with variance `factor / n`.

    Args:
        factor: The factor.
        mode: Whether n is the number of inputs, the number of outputs, or their average:
            `"FAN_IN"`, `"FAN_OUT"` or `"FAN_AVG"`.
        uniform: Whether to draw from a uniform rather than a truncated normal distribution.
        seed: The seed.
        dtype: The type of the values.

    Raises:
        ValueError: `mode` has another value.

    Example:
        >>> weights = variance_scaling_initializer(seed=1)([300, 200])
        >>> print(f"{tf.math.reduce_variance(weights) * 300:.1f}")
        2.0

    Today: https://www.tensorflow.org/api_docs/python/tf/compat/v1/variance_scaling_initializer
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
    """Returns a function that maps weights to `scale` times the sum of their absolute values.

    Args:
        scale: The factor.

    Raises:
        ValueError: `scale` is negative or not a number.

    Example:
        >>> float(l1_regularizer(0.5)(tf.constant([1.0, -3.0])))
        2.0
    """
    _check_scale("l1_regularizer", scale)
    return lambda weights: scale * tf.reduce_sum(tf.abs(weights))


def l2_regularizer(scale: float) -> Regularizer:
    """Returns a function that maps weights to half of `scale` times the sum of their squares.

    Args:
        scale: The factor.

    Raises:
        ValueError: `scale` is negative or not a number.

    Example:
        >>> float(l2_regularizer(0.5)(tf.constant([1.0, -3.0])))
        2.5
    """
    _check_scale("l2_regularizer", scale)
    return lambda weights: scale * tf.nn.l2_loss(weights)


def l1_l2_regularizer(scale_l1: float = 1.0, scale_l2: float = 1.0) -> Regularizer:
    """Returns the sum of `l1_regularizer` and `l2_regularizer`.

    Args:
        scale_l1: As for `l1_regularizer`.
        scale_l2: As for `l2_regularizer`.

    Raises:
        ValueError: A scale is negative or not a number.

    Example:
        >>> float(l1_l2_regularizer(0.5, 0.5)(tf.constant([1.0, -3.0])))
        4.5
    """
    first, second = l1_regularizer(scale_l1), l2_regularizer(scale_l2)
    return lambda weights: first(weights) + second(weights)


def flatten(inputs: Any) -> tf.Tensor:
    """Reshapes a tensor of shape [batch, ...] into a matrix of shape [batch, values].

    Args:
        inputs: The tensor, of rank 1 or more.

    Example:
        >>> print(flatten(tf.zeros([2, 3, 4])).shape)
        (2, 12)

    Today: https://www.tensorflow.org/api_docs/python/tf/compat/v1/layers/flatten
    """
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
        activation_fn: A function to apply to the result, or None.
        reuse: Whether to reuse existing variables.
        variables_collections: Names of collections to add the variables to.
        outputs_collections: Names of collections to add the result to.
        trainable: Whether the variables are trainable.
        begin_norm_axis: The first axis over which the mean and variance are computed.
        begin_params_axis: The first axis whose size becomes part of the variables' shape.
        scope: The variable scope. None means `"LayerNorm"`.

    Returns:
        A tensor with the same shape and type as `inputs`.

    Raises:
        ValueError: An axis does not exist, or its size is unknown.

    Example:
        >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        ...     y = layer_norm(tf.constant([[1.0, 3.0], [10.0, 30.0]]))
        ...     session.run(tf.compat.v1.global_variables_initializer())
        ...     print(session.run(y).round().tolist())
        [[-1.0, 1.0], [-1.0, 1.0]]

    Today: https://www.tensorflow.org/api_docs/python/tf/keras/layers/LayerNormalization
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
        # In half precision, 1e-12 would be 0.
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
