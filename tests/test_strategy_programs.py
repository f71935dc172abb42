"""What a replica's program may contain: random numbers, loops, several cores, v1 graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from replicas import local, per_replica, replica_id, spmd_pairs, strategy_of_all_cores

v1 = tf.compat.v1


@pytest.fixture(scope="module")
def strategy() -> Any:
    """All cores of the process, a replica each."""
    return strategy_of_all_cores()


class TestPrograms:
    """What a replica's program may contain."""

    def test_random_numbers(self, strategy):
        @tf.function
        def step():
            def replica():
                return (
                    tf.random.normal([100]),
                    tf.random.stateless_uniform([4], seed=[3, replica_id()]),
                )

            return strategy.run(replica)

        stateful, stateless = (local(strategy, values) for values in step())
        again, _ = (local(strategy, values) for values in step())
        rows = {row.tobytes() for row in np.concatenate([stateful, again])}
        assert len(rows) == 16
        assert abs(stateful.mean()) < 0.2
        assert 0.8 < stateful.std() < 1.2
        np.testing.assert_array_equal(stateless, local(strategy, step()[1]))
        assert len({row.tobytes() for row in stateless}) == 8

    def test_bfloat16(self, strategy):
        values = np.random.default_rng(0).normal(size=(8, 4, 4)).astype(np.float32)

        @tf.function
        def step(x):
            def replica(x):
                y = tf.matmul(tf.cast(x, tf.bfloat16), tf.cast(x, tf.bfloat16))
                return y, tf.distribute.get_replica_context().all_reduce("SUM", y)

            return strategy.run(replica, args=(x,))

        product, total = step(per_replica(strategy, values))
        products = strategy.experimental_local_results(product)
        assert products[0].dtype == tf.bfloat16
        for x, y in zip(values, products, strict=True):
            np.testing.assert_allclose(tf.cast(y, tf.float32), x @ x, rtol=0.05, atol=0.1)
        expected = sum(tf.cast(y, tf.float32).numpy() for y in products)
        for y in strategy.experimental_local_results(total):
            np.testing.assert_allclose(tf.cast(y, tf.float32), expected, rtol=0.05, atol=0.2)

    def test_gradient_of_an_embedding_lookup(self, strategy):
        table = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
        ids = np.array([[0, 5, 5]] * 4 + [[1, 1, 1]] * 4, np.int32)
        with strategy.scope():
            variable = tf.Variable(table)

        @tf.function
        def step(ids):
            def replica(ids):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_sum(tf.nn.embedding_lookup(variable, ids) ** 2)
                gradient = tf.convert_to_tensor(tape.gradient(loss, variable))
                return tf.distribute.get_replica_context().all_reduce("SUM", gradient)

            return strategy.run(replica, args=(ids,))

        expected = 2 * table * np.bincount(ids.ravel(), minlength=6)[:, None]
        for gradient in local(strategy, step(per_replica(strategy, ids))):
            np.testing.assert_allclose(gradient, expected, rtol=1e-5)

    def test_tensor_array_and_loop(self, strategy):
        @tf.function
        def step(x):
            def replica(x):
                array = tf.TensorArray(tf.float32, size=5)
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    y = x
                    for i in tf.range(5):
                        y = y * x
                        array = array.write(i, y)
                    powers = array.stack()
                    loss = tf.reduce_sum(powers)
                return powers, tape.gradient(loss, x)

            return strategy.run(replica, args=(x,))

        x = 0.5 + np.arange(8, dtype=np.float32) / 8
        powers, gradient = step(per_replica(strategy, x))
        exponents = np.arange(2, 7)
        np.testing.assert_allclose(local(strategy, powers), x[:, None] ** exponents, rtol=1e-5)
        np.testing.assert_allclose(
            local(strategy, gradient),
            (exponents * x[:, None] ** (exponents - 1)).sum(axis=1),
            rtol=1e-5,
        )

    def test_replicas_take_different_branches(self, strategy):
        @tf.function
        def step():
            def replica():
                x = tf.cast(replica_id(), tf.float32)
                y = tf.cond(replica_id() % 2 == 0, lambda: x * 10.0, lambda: -x)
                while y > 30.0:
                    y -= 30.0
                return y

            return strategy.run(replica)

        np.testing.assert_array_equal(local(strategy, step()), [0, -1, 20, -3, 10, -5, 30, -7])


@pytest.fixture(scope="module")
def pairs() -> Any:
    """Replicas of two cores, which share one program."""
    return spmd_pairs(4)


class TestSpmd:
    def test_sharded_matmul(self, pairs):
        rng = np.random.default_rng(0)
        x = rng.normal(size=(4, 6, 8)).astype(np.float32)
        kernel = rng.normal(size=(8, 10)).astype(np.float32)
        assert pairs.num_replicas_in_sync == 4

        for split_x, split_kernel in (([1, 2], [2, 1]), ([2, 1], [1, 2])):

            @tf.function
            def step(x, kernel=kernel, split_x=split_x, split_kernel=split_kernel):
                def replica(x):
                    x = pairs.experimental_split_to_logical_devices(x, split_x)
                    weights = pairs.experimental_split_to_logical_devices(kernel, split_kernel)
                    y = tf.matmul(x, weights)
                    y = pairs.experimental_replicate_to_logical_devices(y)
                    context = tf.distribute.get_replica_context()
                    return y, context.all_reduce("SUM", tf.reduce_sum(y))

                return pairs.run(replica, args=(x,))

            products, totals = step(per_replica(pairs, x))
            np.testing.assert_allclose(local(pairs, products), x @ kernel, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(local(pairs, totals), [(x @ kernel).sum()] * 4, rtol=1e-4)

    def test_training_of_a_split_variable(self, pairs):
        start = np.arange(8, dtype=np.float32).reshape(4, 2) / 4
        with pairs.scope():
            weights = tf.Variable(start)
        x = np.random.default_rng(1).normal(size=(4, 3, 4)).astype(np.float32)

        @tf.function
        def step(x):
            def replica(x):
                with tf.GradientTape() as tape:
                    x = pairs.experimental_split_to_logical_devices(x, [1, 2])
                    loss = tf.reduce_sum(tf.matmul(x, weights) ** 2)
                gradient = tape.gradient(loss, weights)
                context = tf.distribute.get_replica_context()
                weights.assign_sub(0.01 * context.all_reduce("SUM", gradient))

            pairs.run(replica, args=(x,))

        expected = start
        for _ in range(2):
            step(per_replica(pairs, x))
            expected = expected - 0.02 * sum(row.T @ (row @ expected) for row in x)
        np.testing.assert_allclose(weights.numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("control_flow", ["v1", "v2"])
class TestSession:
    @pytest.fixture(autouse=True)
    def chosen_control_flow(self, control_flow):
        was_v2 = tf.compat.v1.control_flow_v2_enabled()
        (v1.enable_control_flow_v2 if control_flow == "v2" else v1.disable_control_flow_v2)()
        yield
        (v1.enable_control_flow_v2 if was_v2 else v1.disable_control_flow_v2)()

    def test_loop_and_branch(self):
        def computation(x):
            y = tf.while_loop(lambda i, y: i < 4, lambda i, y: (i + 1, y * 2), [0, x])[1]
            return tf.cond(y > 10.0, lambda: y - 10, lambda: y + 10)

        with tf.Graph().as_default(), v1.Session() as session:
            session.run(v1.tpu.initialize_system())
            outputs = v1.tpu.replicate(computation, [[float(i)] for i in range(8)])
            got = np.ravel(session.run(outputs))
        np.testing.assert_array_equal(got, [16 * i - 10 if i else 10 for i in range(8)])

    def test_training_step(self):
        with tf.Graph().as_default(), v1.Session() as session:
            session.run(v1.tpu.initialize_system())

            def computation(x):
                weight = v1.get_variable("w", initializer=2.0, use_resource=True)
                optimizer = v1.tpu.CrossShardOptimizer(v1.train.GradientDescentOptimizer(0.1))
                loss = (weight * x - 1.0) ** 2
                return loss, optimizer.minimize(loss)

            x = np.arange(1, 9, dtype=np.float32) / 4
            losses = v1.tpu.replicate(computation, [[value] for value in x])
            session.run(v1.global_variables_initializer())
            weight = 2.0
            for _ in range(3):
                got = np.ravel(session.run(losses))
                np.testing.assert_allclose(got, (weight * x - 1) ** 2, rtol=1e-5)
                weight -= 0.1 * np.mean(2 * x * (weight * x - 1))
