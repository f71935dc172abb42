"""Loops that compute more for all replicas than for single ones run as one program."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf

import tf_tpu_ext

RNG = np.random.default_rng(8)
ROUNDS = 4
FEATURES = 64
WEIGHTS = RNG.normal(size=(FEATURES, 32)).astype(np.float32)


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    yield
    tf_tpu_ext.configure(stack_replicas=True)


def make_strategy(replicas: int) -> tf.distribute.TPUStrategy:
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    topology = tf.tpu.experimental.initialize_tpu_system(resolver)
    assignment = tf.tpu.experimental.DeviceAssignment.build(topology, num_replicas=replicas)
    return tf.distribute.TPUStrategy(resolver, experimental_device_assignment=assignment)


def loss_of(rows: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean((tf.tanh(rows @ weights) - 0.5) ** 2)


def momentum(gradient: tf.Tensor, slot: tf.Variable, weights: tf.Variable) -> None:
    slot.assign(0.9 * slot + gradient)
    weights.assign_sub(0.5 * slot)


def train(replicas: int, rows: np.ndarray) -> tuple[list[np.ndarray], int]:
    """Returns the weights, momentum and each replica's losses, and how many ran as one."""
    strategy = make_strategy(replicas)
    with strategy.scope():
        weights = tf.Variable(WEIGHTS)
        slot = tf.Variable(tf.zeros_like(WEIGHTS))
    data = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(rows[context.replica_id_in_sync_group])
    )

    def replica(x: tf.Tensor) -> tf.Tensor:
        losses = tf.TensorArray(tf.float32, ROUNDS)

        def body(i: tf.Tensor, losses: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
            with tf.GradientTape() as tape:
                loss = loss_of(x, weights)
            gradient = tape.gradient(loss, weights)
            total = tf.distribute.get_replica_context().all_reduce("MEAN", gradient)
            momentum(total, slot, weights)
            return i + 1, losses.write(i, loss)

        return tf.while_loop(lambda i, _: i < ROUNDS, body, (0, losses))[1].stack()

    @tf.function
    def step() -> tf.Tensor:
        return strategy.run(replica, (data,))

    losses = [value.numpy() for value in strategy.experimental_local_results(step())]
    copies = [value.numpy() for value in weights.values]
    assert all(np.array_equal(copies[0], copy) for copy in copies)
    return [copies[0], slot.values[-1].numpy(), np.array(losses)], (
        tf_tpu_ext.compilation_stats().programs[-1].stacked_replicas
    )


def train_plain(rows: np.ndarray) -> list[np.ndarray]:
    weights, slot = tf.Variable(WEIGHTS), tf.Variable(tf.zeros_like(WEIGHTS))
    losses = []
    for _ in range(ROUNDS):
        with tf.GradientTape() as tape:
            by_replica = [loss_of(tf.constant(part), weights) for part in rows]
            loss = tf.add_n(by_replica) / len(rows)
        losses.append([value.numpy() for value in by_replica])
        momentum(tape.gradient(loss, weights), slot, weights)
    return [weights.numpy(), slot.numpy(), np.transpose(losses)]


@pytest.mark.parametrize("stack", [True, False])
@pytest.mark.parametrize("replicas", [2, 8])
def test_all_replicas_run_as_one(replicas: int, stack: bool) -> None:
    """Two rows are far less work than the weights are."""
    tf_tpu_ext.configure(stack_replicas=stack)
    rows = RNG.normal(size=(replicas, 2, FEATURES)).astype(np.float32)
    results, together = train(replicas, rows)
    assert together == (replicas if stack else 1)
    for got, expected in zip(results, train_plain(rows), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_replicas_with_much_to_do_are_divided() -> None:
    rows = RNG.normal(size=(8, 2000, FEATURES)).astype(np.float32)
    results, together = train(8, rows)
    assert together < 8
    for got, expected in zip(results, train_plain(rows), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4)
