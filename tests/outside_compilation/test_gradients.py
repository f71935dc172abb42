"""First and second gradients through clusters."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

v1 = tf.compat.v1


def scalar(replica: int) -> np.float32:
    return np.float32(replica % 4 + 1)


def cube(x):
    return x * x * x


@tf.function
def cube_in_a_function(x):
    return x * x * x


@tf.custom_gradient
def cube_by_text(x):
    """A cube that no core could compute, with a gradient that is another call of the host."""

    def text_of(y):
        return tf.ensure_shape(tf.strings.to_number(tf.strings.as_string(y, precision=9)), y.shape)

    def gradient(upstream):
        return v1.tpu.outside_compilation(lambda x, dy: text_of(3 * x * x) * dy, x, upstream)

    return v1.tpu.outside_compilation(lambda x: text_of(x * x * x), x), gradient


def by_tape(function, x, order):
    """The derivative of a function at x, by nested tapes."""
    if order == 0:
        return function(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = by_tape(function, x, order - 1)
    return tape.gradient(y, x)


def by_graph(function, x, order):
    y = function(x)
    for _ in range(order):
        (y,) = tf.gradients(y, x)
    return y


# Each two of these values in some combination.
@pytest.mark.parametrize(
    ("order", "derive", "host"),
    [
        (1, by_tape, cube),
        (1, by_graph, cube_in_a_function),
        (2, by_tape, cube_in_a_function),
        (2, by_graph, cube),
    ],
)
class TestOrders:
    def test_cluster(self, way, order, derive, host):
        def computation(outside, x):
            return derive(lambda x: outside(host, x * 2.0) * 5.0 + x, x, order)

        results = way.run(computation, scalar)
        for replica, result in enumerate(results):
            x = scalar(replica)
            assert result == pytest.approx({1: 120 * x**2 + 1, 2: 240 * x}[order], rel=1e-5)

    def test_clusters_in_a_row(self, way, order, derive, host):
        def computation(outside, x):
            def function(x):
                return outside(host, outside(host, x) * 2.0)

            return derive(function, x, order)

        for replica, result in enumerate(way.run(computation, scalar)):
            x = scalar(replica)
            assert result == pytest.approx({1: 72 * x**8, 2: 576 * x**7}[order], rel=1e-5)

    def test_cond(self, way, order, derive, host):
        if way.name == "session_v1_control_flow":
            pytest.skip("XLA compiles the gradients of v2 control flow")

        def computation(outside, x):
            def function(x):
                return tf.cond(x > 2.0, lambda: outside(host, x), lambda: x * x)

            return derive(function, x, order)

        for replica, result in enumerate(way.run(computation, scalar)):
            x = scalar(replica)
            expected = {1: 3 * x**2, 2: 6 * x} if x > 2 else {1: 2 * x, 2: 2.0}
            assert result == pytest.approx(expected[order], rel=1e-5)

    def test_while(self, way, order, derive, host):
        if way.name == "session_v1_control_flow":
            pytest.skip("XLA compiles the gradients of v2 control flow")

        def computation(outside, x):
            def function(x):
                return tf.while_loop(
                    lambda number, _: number < 2,
                    lambda number, y: (number + 1, outside(host, y)),
                    [0, x],
                    maximum_iterations=2,
                )[1]

            return derive(function, x, order)

        for replica, result in enumerate(way.run(computation, scalar)):
            x = scalar(replica)
            assert result == pytest.approx({1: 9 * x**8, 2: 72 * x**7}[order], rel=1e-4)


@pytest.mark.parametrize("nested", ["alone", "while", "cond"])
def test_custom_gradient(strategy, mode, nested):
    @tf.function
    def step(x):
        def function(x):
            if nested == "while":
                return tf.while_loop(
                    lambda number, _: number < 2,
                    lambda number, y: (number + 1, cube_by_text(y)),
                    [0, x],
                    maximum_iterations=2,
                )[1]
            if nested == "cond":
                return tf.cond(x > 1.0, lambda: cube_by_text(x), lambda: x)
            return cube_by_text(x)

        return strategy.run(lambda x: by_tape(function, x, 1), args=(x,))

    x = 1.5
    expected = 9 * x**8 if nested == "while" else 3 * x**2
    for got in strategy.experimental_local_results(step(tf.constant(x))):
        assert float(got) == pytest.approx(expected, rel=1e-5)


def test_training_through_a_cluster(strategy, mode):
    """A model with a layer on the host learns what it learns without one."""
    inputs = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)
    labels = inputs @ np.array([[1.0], [-2.0], [0.5]], np.float32)

    def train(outside):
        with strategy.scope():
            weights = tf.Variable(tf.ones([3, 1]))

        @tf.function
        def step():
            def replica():
                with tf.GradientTape() as tape:
                    y = outside(lambda x, w: x @ w, tf.constant(inputs), weights.read_value())
                    loss = tf.reduce_mean((y - labels) ** 2)
                gradient = tape.gradient(loss, weights)
                context = tf.distribute.get_replica_context()
                weights.assign_sub(0.1 * context.all_reduce("MEAN", gradient))

            strategy.run(replica)

        for _ in range(20):
            step()
        return weights.numpy()

    trained = train(v1.tpu.outside_compilation)
    np.testing.assert_allclose(trained, train(lambda f, *inputs: f(*inputs)), rtol=1e-4)
    assert np.abs(trained - 1).max() > 0.5
