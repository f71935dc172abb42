"""`transfer_stats` reports how every cluster reaches the host, how often, and with what."""

from __future__ import annotations

import time

import numpy as np
import pytest
import tensorflow as tf

import tf_tpu_ext

outside = tf_tpu_ext.tpu.outside_compilation


def new_clusters(before: int) -> list[tf_tpu_ext.Cluster]:
    return list(tf_tpu_ext.transfer_stats().clusters[before:])


@pytest.fixture
def before(strategy) -> int:
    del strategy
    return len(tf_tpu_ext.transfer_stats().clusters)


def test_a_folded_cluster_is_counted(before, strategy):
    replicas = strategy.num_replicas_in_sync

    def host(x):
        return tf.strings.to_number(tf.strings.as_string(x))

    @tf.function
    def step(x):
        return tf_tpu_ext.tpu.replicate(lambda x: outside(host, x) + 1.0, [[x]] * replicas)

    for _ in range(3):
        assert [float(y[0]) for y in step(tf.constant(4.0))] == [5.0] * replicas
    (cluster,) = new_clusters(before)
    assert cluster.folded
    assert cluster.calls == 3 * replicas
    assert cluster.bytes_to_host == cluster.bytes_to_device == 4 * cluster.calls
    assert 0 < cluster.running_seconds <= cluster.waiting_seconds + 1e-6
    assert "test_transfer_stats.py:" in cluster.source


def test_clusters_of_compiled_functions_are_told_apart_by_their_lines(before):
    def make():
        return tf.function(lambda x: outside(tf.square, x) + 1.0, jit_compile=True)

    @tf.function(jit_compile=True)
    def once(x):
        return outside(tf.square, x) + 1.0

    @tf.function(jit_compile=True)
    def twice(x):
        return outside(tf.square, x) + 1.0

    for function in (make(), once, twice, twice):
        assert float(function(tf.constant(3.0))) == 10.0
    clusters = new_clusters(before)
    assert [cluster.calls for cluster in clusters] == [1, 1, 2]
    assert all("test_transfer_stats.py:" in cluster.source for cluster in clusters)
    assert len({cluster.source for cluster in clusters}) == 3


def test_a_cluster_in_a_loop_counts_every_round(before):
    def body(i, x):
        return i + 1, outside(lambda x: x + 2.0, x)

    @tf.function
    def step(x):
        def replica(x):
            return tf.while_loop(lambda i, _: i < 5, body, (0, x))[1]

        return tf_tpu_ext.tpu.rewrite(replica, [x])

    assert float(step(tf.constant(0.0))[0]) == 10.0
    (cluster,) = new_clusters(before)
    assert cluster.calls == 5


def test_a_cluster_that_stays_says_why(before):
    counter = tf.Variable(0.0)

    def host(x):
        counter.assign_add(x)
        return x * 2.0

    @tf.function
    def step(x):
        return tf_tpu_ext.tpu.rewrite(lambda x: outside(host, x + 1.0) + 1.0, [x])

    assert float(step(tf.constant(2.0))[0]) == 7.0
    assert float(counter) == 3.0
    (cluster,) = new_clusters(before)
    assert not cluster.folded
    assert "state of the host" in cluster.not_folded_because
    assert cluster.calls == 1
    assert cluster.bytes_to_host == 4
    assert cluster.bytes_to_device == 4
    assert 0 < cluster.running_seconds <= cluster.waiting_seconds


def test_time_in_a_host_graph_is_that_of_the_host(before):
    counter = tf.Variable(0.0)
    took = []

    def python(x):
        begin = time.monotonic()
        for _ in range(100000):
            x = x + np.float32(0)
        took.append(time.monotonic() - begin)
        return x

    def slow(x):
        counter.assign_add(x)
        return tf.ensure_shape(tf.numpy_function(python, [x], tf.float32), [])

    def computation(x):
        return outside(slow, x + 1.0) + 1.0

    step = tf.function(lambda x: tf_tpu_ext.tpu.rewrite(computation, [x]), autograph=False)
    begin = time.monotonic()
    assert float(step(tf.constant(2.0))[0]) == 4.0
    step_took = time.monotonic() - begin
    (cluster,) = new_clusters(before)
    assert not cluster.folded
    assert took[0] <= cluster.running_seconds <= cluster.waiting_seconds <= step_took


def test_clusters_of_two_programs_are_counted_apart(before):
    """Their ops have the same names."""
    counter = tf.Variable(0.0)

    def make_step(rounds):
        def host(x):
            counter.assign_add(x)
            return x * 2.0

        def double(x):
            return outside(host, x + 1.0) - 2.0

        def keep_doubling(x):
            return tf.while_loop(
                lambda i, _: i < rounds, lambda i, x: (i + 1, outside(host, x)), (0, x)
            )[1]

        computation = double if rounds == 1 else keep_doubling
        return tf.function(lambda x: tf_tpu_ext.tpu.rewrite(computation, [x]), autograph=False)

    assert float(make_step(1)(tf.constant(1.0))[0]) == 2.0
    assert float(make_step(3)(tf.constant(1.0))[0]) == 8.0
    assert float(make_step(5)(tf.constant(1.0))[0]) == 32.0
    once, in_loop = new_clusters(before)
    assert once.calls == 1
    # One line of Python made these two.
    assert in_loop.calls == 3 + 5


def test_effects_of_all_clusters_keep_one_order(before):
    """A cluster that stays keeps the others with effects, but not those without."""
    log: list[float] = []
    counter = tf.Variable(0.0)

    def effect(x):
        tf.numpy_function(lambda a: log.append(float(a)), [x], [])

    def count(x):
        counter.assign_add(x)

    def computation(x):
        outside(effect, x)
        outside(count, x)
        outside(effect, x + 1.0)
        return outside(tf.square, x)

    step = tf.function(lambda x: tf_tpu_ext.tpu.rewrite(computation, [x]), autograph=False)
    assert float(step(tf.constant(3.0))[0]) == 9.0
    assert log == [3.0, 4.0]
    clusters = new_clusters(before)
    assert [cluster.folded for cluster in clusters] == [False, False, False, True]
    assert "keep their order" in clusters[0].not_folded_because


def test_nothing_is_folded_on_request(before):
    tf_tpu_ext.configure(fold_host_calls=False)
    try:
        assert not tf_tpu_ext.machine().options.fold_host_calls
        step = tf.function(lambda x: tf_tpu_ext.tpu.rewrite(lambda x: outside(tf.sin, x), [x]))
        np.testing.assert_allclose(step(tf.constant(1.0))[0], np.sin(1.0), rtol=1e-6)
    finally:
        tf_tpu_ext.configure(fold_host_calls=True)
    (cluster,) = new_clusters(before)
    assert "fold_host_calls" in cluster.not_folded_because
