"""Programs whose shapes are known only inside a replica: each replica compiles its own.

What the host computes of a replica's arguments becomes an argument of the compiled program.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from replicas import local, strategy_of_all_cores
from tensorflow.python.tpu import tpu_replication

TPUClusterResolver = tf.distribute.cluster_resolver.TPUClusterResolver


@pytest.fixture(scope="module")
def strategy() -> Any:
    """All cores of the process, a replica each."""
    return strategy_of_all_cores()


@pytest.fixture(scope="module")
def lengths(strategy) -> Any:
    """Gives replica i the number i + 2."""
    return strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(context.replica_id_in_sync_group + 2)
    )


def step_function(strategy: Any, replica: Any) -> Any:
    # Not a lambda: TPUStrategy makes a scope of the name.
    @tf.function
    def step(lengths):
        return strategy.run(replica, (lengths,))

    return step


def summed_squares(length: Any) -> Any:
    """The sum of the squares below the length, and the sum of that over the replicas."""
    numbers = tpu_replication.outside_compilation(
        lambda: tf.range(tf.cast(length, tf.float32), dtype=tf.float32)
    )
    mine = tf.reduce_sum(tf.square(numbers))
    context = tf.distribute.get_replica_context()
    return mine, context.all_reduce(tf.distribute.ReduceOp.SUM, mine)


SQUARES = np.array([float(np.sum(np.arange(i + 2) ** 2)) for i in range(8)])


def check(strategy: Any, results: Any) -> None:
    mine, total = results
    np.testing.assert_allclose(local(strategy, mine), SQUARES)
    np.testing.assert_allclose(local(strategy, total), [SQUARES.sum()] * 8)


def test_replicas_of_different_shapes_meet_in_collectives(strategy, lengths):
    step = step_function(strategy, summed_squares)
    check(strategy, step(lengths))
    check(strategy, step(lengths))


def test_two_equal_computations_in_one_function_do_not_mix(strategy, lengths):
    @tf.function
    def step(lengths):
        return (
            strategy.run(summed_squares, (lengths,)),
            strategy.run(summed_squares, (lengths,)),
        )

    for results in step(lengths):
        check(strategy, results)


def test_called_and_inlined_functions_do_not_mix(strategy, lengths):
    part = step_function(strategy, summed_squares)

    @tf.function
    def step(lengths):
        return part(lengths), part(lengths)

    for results in step(lengths):
        check(strategy, results)


def test_in_a_host_loop(strategy, lengths):
    @tf.function
    def steps(count, lengths):
        total = tf.zeros([])
        for _ in tf.range(count):
            _, sums = strategy.run(summed_squares, (lengths,))
            total += strategy.experimental_local_results(sums)[0]
        return total

    np.testing.assert_allclose(steps(tf.constant(5), lengths), 5 * SQUARES.sum())


def test_from_several_threads(strategy, lengths):
    step = step_function(strategy, summed_squares)
    check(strategy, step(lengths))
    results: list[Any] = []

    def run() -> None:
        for _ in range(5):
            results.append(step(lengths))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 15
    for result in results:
        check(strategy, result)


def test_after_a_replica_failed(strategy, lengths):
    """The replicas that did come to the failed step leave nothing to the next."""

    def replica(length, failing):
        def numbers():
            ok = tf.not_equal(length, failing)
            with tf.control_dependencies([tf.debugging.Assert(ok, ["this replica fails"])]):
                return tf.range(tf.cast(length, tf.float32), dtype=tf.float32)

        values = tpu_replication.outside_compilation(numbers)
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.reduce_sum(values))

    @tf.function
    def step(lengths, failing):
        return strategy.run(replica, (lengths, failing))

    for _ in range(3):
        with pytest.raises(tf.errors.InvalidArgumentError, match="this replica fails"):
            step(lengths, tf.constant(5))
    expected = sum(np.arange(i + 2).sum() for i in range(8))
    np.testing.assert_allclose(local(strategy, step(lengths, tf.constant(-1))), [expected] * 8)


def test_in_a_session_graph():
    """Here the graph itself does not say which compilations belong together."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        queue = v1.FIFOQueue(32, tf.float32)
        values = v1.placeholder(tf.float32, [None])
        fill = queue.enqueue_many([values])

        def computation(x):
            # Nothing says what shape the queue's elements have.
            taken = v1.tpu.outside_compilation(queue.dequeue)
            return v1.tpu.cross_replica_sum(x + tf.reduce_sum(taken))

        first = v1.tpu.replicate(computation, [[tf.constant(1.0)] for _ in range(8)])
        second = v1.tpu.replicate(computation, [[tf.constant(2.0)] for _ in range(8)])
        session.run(v1.tpu.initialize_system())
        for _ in range(3):
            session.run(fill, {values: np.arange(16.0)})
            one, two = session.run([first, second])
            np.testing.assert_allclose(one, [[one[0][0]]] * 8)
            np.testing.assert_allclose(two, [[two[0][0]]] * 8)
            np.testing.assert_allclose(
                one[0][0] + two[0][0], 8 * (1.0 + 2.0) + np.arange(16.0).sum()
            )
