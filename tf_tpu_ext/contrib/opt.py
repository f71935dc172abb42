"""Optimizers from `tf.contrib.opt` and `tf.contrib.estimator`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


class LARSOptimizer(tf.compat.v1.train.MomentumOptimizer):
    """Layer-wise adaptive rate scaling (LARS): momentum with a learning rate for each variable.

    The rate of a variable is `learning_rate * eeta * |w| / (|g| + weight_decay * |w| + epsilon)`,
    and its gradient is `g + weight_decay * w`. If a norm is zero, the rate is `learning_rate`.
    Variables whose names contain an entry of `skip_list` have the rate `learning_rate` and no
    weight decay.

    Args:
        learning_rate: The base learning rate.
        momentum: The momentum.
        weight_decay: The factor by which the variable is added to its gradient.
        eeta: The factor of the ratio of the norms.
        epsilon: Added to the denominator of the ratio.
        name: The name of the ops.
        skip_list: Parts of names, such as "batch_normalization" and "bias".
        use_nesterov: Whether to use Nesterov momentum.

    Raises:
        ValueError: `momentum` is negative.

    Example:
        >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        ...     weight = tf.compat.v1.get_variable("weight", initializer=4.0)
        ...     optimizer = LARSOptimizer(1.0, weight_decay=0.0, eeta=0.5)
        ...     step = optimizer.minimize(weight * weight)
        ...     session.run(tf.compat.v1.global_variables_initializer())
        ...     session.run(step)
        ...     print(session.run(weight))  # 4 - 0.5 * |4| / |8| * 8
        2.0

    The method is from You, Gitman and Ginsburg, https://arxiv.org/abs/1708.03888.
    """

    def __init__(
        self,
        learning_rate: Any,
        momentum: float = 0.9,
        weight_decay: float = 0.0001,
        eeta: float = 0.001,
        epsilon: float = 0.0,
        name: str = "LARSOptimizer",
        skip_list: Sequence[str] | None = None,
        use_nesterov: bool = False,
    ) -> None:
        """Creates the optimizer."""
        if momentum < 0:
            raise ValueError(f"LARSOptimizer got momentum={momentum}, expected at least 0.")
        super().__init__(learning_rate, momentum, name=name, use_nesterov=use_nesterov)
        self._weight_decay = weight_decay
        self._eeta = eeta
        self._epsilon = epsilon
        self._skip_list = tuple(skip_list or ())

    def _apply_dense(self, grad: tf.Tensor, var: Any) -> Any:
        return self._update(grad, var)

    def _resource_apply_dense(self, grad: tf.Tensor, var: Any) -> Any:
        return self._update(grad, var)

    def _update(self, gradient: tf.Tensor, variable: Any) -> Any:
        rate = tf.cast(self._learning_rate_tensor, gradient.dtype)
        momentum = tf.cast(self._momentum_tensor, gradient.dtype)
        if not any(part in variable.op.name for part in self._skip_list):
            value = tf.cast(variable, gradient.dtype)
            rate *= self._ratio(tf.norm(value), tf.norm(gradient))
            gradient += self._weight_decay * value
        velocity = self.get_slot(variable, "momentum")
        new = tf.identity(velocity.assign(momentum * velocity + gradient))
        change = gradient + momentum * new if self._use_nesterov else new
        return variable.assign_sub(rate * change)

    def _ratio(self, weight_norm: tf.Tensor, gradient_norm: tf.Tensor) -> tf.Tensor:
        decay = self._weight_decay * weight_norm
        ratio = self._eeta * weight_norm / (gradient_norm + decay + self._epsilon)
        both = tf.logical_and(weight_norm > 0, gradient_norm > 0)
        return tf.where(both, ratio, tf.ones_like(ratio))


class _Clipped(tf.compat.v1.train.Optimizer):
    """An optimizer that first clips the gradients."""

    def __init__(self, optimizer: Any, norm: float) -> None:
        super().__init__(use_locking=False, name=f"Clipped{optimizer.get_name()}")
        self._optimizer = optimizer
        self._norm = norm

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """Computes the wrapped optimizer's gradients."""
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """Applies the gradients after clipping them by their global norm."""
        gradients, variables = zip(*grads_and_vars, strict=True)
        clipped, _ = tf.clip_by_global_norm(gradients, self._norm)
        pairs = list(zip(clipped, variables, strict=True))
        return self._optimizer.apply_gradients(pairs, *args, **kwargs)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the wrapped optimizer's slot."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self) -> Any:
        """Returns the names of the wrapped optimizer's slots."""
        return self._optimizer.get_slot_names()

    def variables(self) -> Any:
        """Returns the wrapped optimizer's variables."""
        return self._optimizer.variables()


def clip_gradients_by_norm(optimizer: Any, clip_norm: float) -> Any:
    """Returns an optimizer that clips gradients by their global norm.

    Args:
        optimizer: A `tf.compat.v1.train.Optimizer`, or a function that returns one.
        clip_norm: The largest global norm of the gradients.

    Returns:
        The optimizer, or a function that returns it if `optimizer` is a function.

    Example:
        >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        ...     x = tf.compat.v1.get_variable("x", initializer=[0.0, 0.0])
        ...     descent = tf.compat.v1.train.GradientDescentOptimizer(1.0)
        ...     step = clip_gradients_by_norm(descent, 1.0).minimize(tf.reduce_sum(x * [3.0, 4.0]))
        ...     session.run(tf.compat.v1.global_variables_initializer())
        ...     session.run(step)
        ...     print([f"{value:.1f}" for value in session.run(x)])
        ['-0.6', '-0.8']

    It clips like https://www.tensorflow.org/api_docs/python/tf/clip_by_global_norm
    """
    if callable(optimizer):
        return lambda: _Clipped(optimizer(), clip_norm)
    return _Clipped(optimizer, clip_norm)
