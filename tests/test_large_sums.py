"""Sums of products that are large enough for XLA's library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from replicas import per_replica

import tf_tpu_ext

AXES = (0, 1, 2)


def images(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(3.0, 2.0, (16, 32, 32, 48)).astype(np.float32)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_moments_equal_those_of_numpy(dtype: str) -> None:
    x = images(1).astype(tf.as_dtype(dtype).as_numpy_dtype)

    def moments(x: Any) -> Any:
        mean = tf.reduce_mean(x, AXES)
        return mean, tf.reduce_mean(tf.math.squared_difference(x, mean), AXES)

    mean, variance = tf.function(lambda x: tf_tpu_ext.tpu.rewrite(moments, [x]))(x)
    tolerance = 1e-5 if dtype == "float32" else 0.02
    exact = x.astype(np.float64)
    np.testing.assert_allclose(mean.numpy().astype(np.float64), exact.mean(AXES), rtol=tolerance)
    np.testing.assert_allclose(variance.numpy().astype(np.float64), exact.var(AXES), rtol=tolerance)


def test_infinity_and_nan_stay() -> None:
    x = images(2)
    x[0, 0, 0, 0] = np.nan
    x[-1, -1, -1, 1] = -np.inf

    def squares(x: Any) -> Any:
        return tf.reduce_sum(x * x, AXES)

    [sums] = tf.function(lambda x: tf_tpu_ext.tpu.rewrite(squares, [x]))(x)
    np.testing.assert_allclose(sums, (x.astype(np.float64) ** 2).sum(AXES), rtol=1e-5)


def test_training_equals_numpy(strategy: tf.distribute.TPUStrategy) -> None:
    replicas = strategy.num_replicas_in_sync
    with strategy.scope():
        scale = tf.Variable(np.linspace(0.5, 1.5, 48, dtype=np.float32))

    @tf.function
    def step(x: Any) -> Any:
        def replica(x: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((scale * x) ** 2)
            context = tf.distribute.get_replica_context()
            gradient = context.all_reduce("MEAN", tape.gradient(loss, scale))
            scale.assign_sub(gradient)
            return loss

        return strategy.run(replica, args=(x,))

    batches = [images(replica) for replica in range(replicas)]
    distributed = per_replica(strategy, batches)
    expected = np.linspace(0.5, 1.5, 48)
    squares = np.mean([(x.astype(np.float64) ** 2).sum(AXES) / x.size for x in batches], axis=0)
    for _ in range(3):
        step(distributed)
        expected -= 2 * expected * squares
    np.testing.assert_allclose(scale, expected, rtol=1e-4)
