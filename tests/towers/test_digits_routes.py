"""Digits, trained by three routes over towers and by NumPy: the losses are the same."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from sklearn.datasets import load_digits

from tf_tpu_ext.towers import VariableAggregation, get_tower_context

v1 = tf.compat.v1
MEAN = VariableAggregation.MEAN
BATCH, STEPS, RATE, HIDDEN = 64, 12, 0.1, 24


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    data, labels = load_digits(return_X_y=True)
    rows = BATCH * STEPS
    return (data[:rows] / 16.0).astype(np.float32), labels[:rows].astype(np.int32)


@pytest.fixture(scope="module")
def weights() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = [(64, HIDDEN), (HIDDEN,), (HIDDEN, 10), (10,)]
    return [(rng.normal(size=shape) * 0.1).astype(np.float32) for shape in shapes]


@pytest.fixture(scope="module")
def expected(digits: Any, weights: Any) -> list[float]:
    """The losses of plain NumPy."""
    w1, b1, w2, b2 = (w.astype(np.float64) for w in weights)
    losses = []
    for step in range(STEPS):
        x, y = (part[step * BATCH : (step + 1) * BATCH] for part in digits)
        hidden = np.maximum(x @ w1 + b1, 0)
        logits = hidden @ w2 + b2
        shifted = np.exp(logits - logits.max(1, keepdims=True))
        probabilities = shifted / shifted.sum(1, keepdims=True)
        losses.append(-np.log(probabilities[np.arange(BATCH), y]).mean())
        error = (probabilities - np.eye(10)[y]) / BATCH
        below = (error @ w2.T) * (hidden > 0)
        w1, b1 = w1 - RATE * x.T @ below, b1 - RATE * below.sum(0)
        w2, b2 = w2 - RATE * hidden.T @ error, b2 - RATE * error.sum(0)
    return losses


def loss_of(variables: Any, x: Any, y: Any) -> Any:
    w1, b1, w2, b2 = variables
    logits = tf.nn.relu(x @ w1 + b1) @ w2 + b2
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))


def tower_batches(strategy: Any, digits: Any) -> Any:
    dataset = tf.data.Dataset.from_tensor_slices(digits)
    return dataset.batch(BATCH // strategy.num_towers, drop_remainder=True)


def by_run_steps_on_dataset(strategy: Any, digits: Any, weights: Any) -> list[float]:
    losses = []
    with tf.Graph().as_default(), v1.Session() as session, strategy.scope():
        variables = [v1.get_variable(f"w{i}", initializer=w) for i, w in enumerate(weights)]
        optimizer = v1.train.GradientDescentOptimizer(RATE)
        iterator = strategy.distribute_dataset(
            lambda: tower_batches(strategy, digits)
        ).make_initializable_iterator()

        def step(context, x, y):
            def tower(x, y):
                loss = loss_of(variables, x, y)
                with tf.control_dependencies([loss]):
                    return optimizer.minimize(loss), loss

            trained, loss = strategy.call_for_each_tower(tower, x, y)
            context.set_last_step_output("loss", loss, MEAN)
            return strategy.group(trained)

        # Three steps at a time, of which the last one's loss is seen.
        context = strategy.run_steps_on_dataset(step, iterator, iterations=3)
        initialize = v1.global_variables_initializer()
        session.run(strategy.initialize())
        session.run([initialize, iterator.initializer])
        for _ in range(STEPS // 3):
            losses.append(session.run([context.run_op, context.last_step_outputs])[1]["loss"])
    return losses


def by_merge_call(strategy: Any, digits: Any, weights: Any) -> list[float]:
    with strategy.scope():
        variables = [tf.Variable(w) for w in weights]
    iterator = iter(strategy.distribute_dataset(lambda: tower_batches(strategy, digits)))

    def apply(distribution, gradients):
        means = distribution.batch_reduce(MEAN, list(zip(gradients, variables, strict=True)))
        for variable, mean in zip(variables, means, strict=True):
            distribution.update(variable, lambda v, g: v.assign_sub(RATE * g), mean)

    def tower(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(variables, x, y)
        get_tower_context().merge_call(apply, tape.gradient(loss, variables))
        return loss

    losses = []
    with strategy.scope():
        for x, y in iterator:
            loss = strategy.call_for_each_tower(tower, x, y)
            losses.append(float(strategy.reduce(MEAN, loss, "/device:CPU:0")))
    return losses


def by_keras(strategy: Any, digits: Any, weights: Any) -> list[float]:
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input([64]), keras.layers.Dense(HIDDEN, "relu"), keras.layers.Dense(10)]
        )
        model.set_weights(weights)
        model.compile(
            keras.optimizers.SGD(RATE), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        )
    batches = tf.data.Dataset.from_tensor_slices(digits).batch(BATCH, drop_remainder=True)
    history = model.fit(batches, epochs=STEPS, steps_per_epoch=1, verbose=0)
    return list(history.history["loss"])


@pytest.mark.parametrize("route", [by_run_steps_on_dataset, by_merge_call, by_keras])
def test_losses(strategy, digits, weights, expected, route):
    losses = route(strategy, digits, weights)
    every = STEPS // len(losses)
    np.testing.assert_allclose(losses, expected[every - 1 :: every], rtol=1e-5)
    assert losses[-1] < losses[0]
