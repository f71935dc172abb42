"""Optimizers that update many small variables, which are computed together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from replicas import per_replica

RATE, DECAY, EPSILON = 0.05, 0.9, 1e-3
# Alike but for their shapes, beside large ones with an update of their own.
SHAPES = [(3,), (2, 5), (1,), (2, 1, 4), (7, 1), (300,), (20_000,), (200, 100)]


def starts() -> list[np.ndarray]:
    return [
        np.random.default_rng(i).normal(0.0, 1.0, shape).astype(np.float32)
        for i, shape in enumerate(SHAPES)
    ]


def rmsprop(weights: Any, squares: Any, gradient: Any, sqrt: Any) -> tuple[Any, Any]:
    """Returns the new weights and averages of squared gradients."""
    squares = DECAY * squares + (1 - DECAY) * gradient * gradient
    return weights - RATE * gradient / (sqrt(squares) + EPSILON), squares


class Model:
    """Each weight shall become the replicas' mean scale, times 0.5."""

    def __init__(self, strategy: tf.distribute.TPUStrategy) -> None:
        self._strategy = strategy
        with strategy.scope():
            self.weights = [tf.Variable(start) for start in starts()]
            self._squares = [tf.Variable(tf.zeros(shape)) for shape in SHAPES]
        self.run = tf.function(self._run)

    def _step(self, scale: Any) -> None:
        with tf.GradientTape() as tape:
            losses = [tf.reduce_sum((weight - 0.5 * scale) ** 2) for weight in self.weights]
            loss = tf.add_n(losses)
        context = tf.distribute.get_replica_context()
        gradients = context.all_reduce("MEAN", tape.gradient(loss, self.weights))
        for weight, square, gradient in zip(self.weights, self._squares, gradients, strict=True):
            new_weight, new_square = rmsprop(weight, square, gradient, tf.sqrt)
            weight.assign(new_weight)
            square.assign(new_square)

    def _run(self, scale: Any, steps: int) -> None:
        def replica(scale: Any) -> None:
            if steps == 1:
                self._step(scale)
                return
            for _ in tf.range(steps):
                self._step(scale)

        self._strategy.run(replica, args=(scale,))


@pytest.mark.parametrize("steps", [1, 4])
def test_training_equals_numpy(strategy: tf.distribute.TPUStrategy, steps: int) -> None:
    scales = np.linspace(0.5, 1.5, strategy.num_replicas_in_sync, dtype=np.float32)
    model = Model(strategy)
    expected = [(start.astype(np.float64), np.zeros(start.shape)) for start in starts()]
    for _ in range(3):
        model.run(per_replica(strategy, scales), steps)
        for _ in range(steps):
            expected = [
                rmsprop(weights, squares, 2 * (weights - 0.5 * scales.mean()), np.sqrt)
                for weights, squares in expected
            ]
    for weight, (weights, _) in zip(model.weights, expected, strict=True):
        for value in strategy.experimental_local_results(weight):
            np.testing.assert_allclose(value, weights, rtol=1e-4, atol=1e-5)


def test_a_value_that_is_still_held_stays(strategy: tf.distribute.TPUStrategy) -> None:
    model = Model(strategy)
    held = [weight.read_value() for weight in model.weights]
    model.run(per_replica(strategy, np.ones(strategy.num_replicas_in_sync, np.float32)), 1)
    for value, weight, start in zip(held, model.weights, starts(), strict=True):
        np.testing.assert_array_equal(value, start)
        assert np.all(weight.numpy() != start)
