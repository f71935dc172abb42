"""Clusters beside each other: several, dependent ones, at the head and the tail, in replicas."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.tpu import tpu_replication

v1 = tf.compat.v1
map_outside = tpu_replication.experimental_map_outside_compilation


def vector(replica: int) -> np.ndarray:
    return np.arange(3, dtype=np.float32) + 10 * replica


def half(x):
    """Halves a number by way of its text, which no core could do."""
    text = tf.strings.as_string(x / 2)
    return tf.ensure_shape(tf.strings.to_number(text), x.shape)


def test_several_clusters(way):
    def computation(outside, x):
        parts = [outside(lambda y, n=n: half(y) * n, x + n) for n in range(6)]
        return tf.add_n(parts)

    way.check(computation, vector)


def test_clusters_that_depend_on_each_other(way):
    def computation(outside, x):
        y = x * 2
        for _ in range(4):
            y = outside(half, y) + y
        z = outside(lambda a, b: half(a) - b, y, x)
        return outside(lambda a, b, c: a + half(b) * c, z, y, z * x)

    way.check(computation, vector)


def test_cluster_feeds_a_cluster(way):
    """What stays on the host may be of any type."""

    def computation(outside, x):
        text = outside(lambda y: tf.strings.as_string(y), x * 2)
        return outside(lambda t: tf.ensure_shape(tf.strings.length(t), [3]), text) + 1

    way.check(computation, vector)


def test_head(way):
    def computation(outside, x):
        return outside(half, x) * 2 + x

    way.check(computation, vector)


def test_tail(way):
    def computation(outside, x):
        return outside(half, x * 2 + 1)

    way.check(computation, vector)


def test_head_middle_and_tail(way):
    def computation(outside, x):
        x = outside(half, x)
        y = outside(half, x * 3) + x
        return outside(half, y - 1), y

    way.check(computation, vector)


def test_nothing_but_a_cluster(way):
    way.check(lambda outside, x: outside(half, x), vector)


def test_tail_of_strings(way):
    """What a program returns need not have been on a core."""
    way.check(lambda outside, x: outside(tf.strings.as_string, x * 2), vector)


def test_head_of_strings(strategy, mode):
    @tf.function
    def step(x, names):
        def replica(x, names):
            n = v1.tpu.outside_compilation(tf.strings.length, names)
            y = tf.cast(n, tf.float32) * x
            size = v1.tpu.outside_compilation(tf.size, names)
            return y + tf.cast(size, tf.float32)

        return strategy.run(replica, args=(x, names))

    for names in (["a", "bcd"], ["", "efgh"]):
        expected = [len(name) * 3.0 + 2 for name in names]
        for got in strategy.experimental_local_results(step(tf.constant(3.0), tf.constant(names))):
            np.testing.assert_allclose(got, expected)


def test_nested_calls(strategy, mode):
    @tf.function
    def step():
        def replica():
            outside = v1.tpu.outside_compilation
            return outside(lambda x: outside(half, x) + 1, tf.constant(3.0) * 2)

        return strategy.run(replica)

    for got in strategy.experimental_local_results(step()):
        assert float(got) == 4.0


def test_function_within_a_function(strategy, mode):
    @tf.function
    def inner(x):
        return v1.tpu.outside_compilation(half, x * 2) + 1

    @tf.function
    def step(x):
        return strategy.run(lambda x: inner(x) - inner(inner(x)), args=(x,))

    expected = (5.0 + 1) - (5.0 + 2)
    for got in strategy.experimental_local_results(step(tf.constant(5.0))):
        assert float(got) == expected


def test_cluster_that_calls_a_function(way):
    @tf.function
    def on_host(x):
        return tf.cond(tf.reduce_sum(x) > 40.0, lambda: half(x), lambda: x * 7.0)

    way.check(lambda outside, x: outside(on_host, x + 1) - 1, vector)


def test_cluster_that_calls_a_function_that_is_not_inlined(way):
    def kept(x):
        boxes = tf.stack([x, x, x + 0.5, x + 0.5], axis=1)
        indices, _ = tf.image.non_max_suppression_padded(
            boxes, x, 2, iou_threshold=0.3, pad_to_max_output_size=True
        )
        return tf.cast(indices, tf.float32)

    way.check(lambda outside, x: outside(kept, x + 1) * 2, vector)


def test_unused_result(way):
    def computation(outside, x):
        outside(half, x * 2)
        return x + 1

    way.check(computation, vector)


def test_each_replica_has_its_own_cluster(way):
    calls = []

    def remember(x):
        def python(x):
            calls.append(float(x[0]))
            return x * 2

        return tf.ensure_shape(tf.py_function(python, [x], tf.float32), [3])

    def computation(outside, x):
        return outside(remember, x + 1) + 1

    way.run(computation, vector)
    assert sorted(calls) == [10.0 * replica + 1 for replica in range(way.cores)]


def test_collective_between_clusters(strategy, mode):
    @tf.function
    def step(x):
        def replica(x):
            context = tf.distribute.get_replica_context()
            y = v1.tpu.outside_compilation(half, x + 1)
            y = context.all_reduce("SUM", y)
            return v1.tpu.outside_compilation(half, y)

        return strategy.run(replica, args=(x,))

    cores = strategy.num_replicas_in_sync
    values = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(float(context.replica_id_in_sync_group))
    )
    expected = sum((replica + 1) / 2 for replica in range(cores)) / 2
    for got in strategy.experimental_local_results(step(values)):
        assert float(got) == pytest.approx(expected)


class TestModelParallel:
    """Replicas of several cores."""

    @pytest.fixture
    def parallel(self, strategy):
        if strategy.num_replicas_in_sync % 2:
            pytest.skip("a replica here has two cores")
        topology = tf.tpu.experimental.initialize_tpu_system(
            tf.distribute.cluster_resolver.TPUClusterResolver()
        )
        replicas = strategy.num_replicas_in_sync // 2
        assignment = tf.tpu.experimental.DeviceAssignment.build(
            topology, computation_shape=[1, 1, 1, 2], num_replicas=replicas
        )
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
        return tf.distribute.TPUStrategy(
            resolver,
            experimental_device_assignment=assignment,
            experimental_spmd_xla_partitioning=True,
        )

    def test_cluster_gets_the_whole_tensor(self, parallel):
        value = np.arange(8, dtype=np.float32).reshape(4, 2)

        @tf.function
        def step(x):
            def replica(x):
                x = parallel.experimental_split_to_logical_devices(x, [2, 1])
                return v1.tpu.outside_compilation(lambda x: x - tf.reduce_mean(x), x * 2)

            return parallel.run(replica, args=(x,))

        for got in parallel.experimental_local_results(step(tf.constant(value))):
            np.testing.assert_allclose(got, 2 * value - np.mean(2 * value))

    def test_map_gives_each_core_its_part(self, parallel):
        value = np.arange(8, dtype=np.float32).reshape(4, 2)

        @tf.function
        def step(x):
            def replica(x):
                x = parallel.experimental_split_to_logical_devices(x * 2, [2, 1])
                y = map_outside(lambda part: part - tf.reduce_mean(part), x)
                return parallel.experimental_split_to_logical_devices(y, [2, 1])

            return parallel.run(replica, args=(x,))

        parts = [part * 2 for part in np.split(value, 2)]
        expected = np.concatenate([part - part.mean() for part in parts])
        for got in parallel.experimental_local_results(step(tf.constant(value))):
            np.testing.assert_allclose(got, expected)
