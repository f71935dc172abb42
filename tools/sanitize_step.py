"""Trains for a few steps on two and four cores, and checks them: what tools/sanitize runs."""

from __future__ import annotations

import os

os.environ["TF_TPU_EXT_CORES"] = "4"

import numpy as np
import tensorflow as tf

import tf_tpu_ext  # noqa: F401

STEPS = 5
RATE = 0.1
BATCH = 8
FEATURES = 4
# Enough for an in-place update.
LARGE = 40_000


def expected(inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The weights after the same steps of gradient descent, computed with NumPy."""
    weights = np.zeros((FEATURES, 1), np.float32)
    for _ in range(STEPS):
        error = inputs @ weights - targets
        weights -= RATE * 2.0 * inputs.T @ error / BATCH
    return weights


def train(strategy: tf.distribute.TPUStrategy) -> None:
    random = np.random.default_rng(0)
    inputs = random.normal(size=(BATCH, FEATURES)).astype(np.float32)
    targets = random.normal(size=(BATCH, 1)).astype(np.float32)
    with strategy.scope():
        weights = tf.Variable(np.zeros((FEATURES, 1), np.float32))
        sums = tf.Variable(np.zeros(LARGE, np.float32))
    dataset = tf.data.Dataset.from_tensors((inputs, targets)).unbatch().batch(BATCH).repeat()
    batches = iter(strategy.experimental_distribute_dataset(dataset))

    def replica_step(features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((features @ weights - labels) ** 2) / BATCH
        gradient = tape.gradient(loss, weights)
        total = tf.distribute.get_replica_context().all_reduce("sum", gradient)
        weights.assign_sub(RATE * total)
        images = tf.fill([8, 32, 32, 8], features[0, 0])
        images = tf.nn.conv2d(images, tf.ones([3, 3, 8, 8]), 1, "SAME")
        value = tf.reduce_sum(features) + 0.0 * tf.reduce_sum(images)
        sums.assign_add(
            tf.fill([LARGE], tf.distribute.get_replica_context().all_reduce("sum", value))
        )
        return loss

    @tf.function
    def step(features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        losses = strategy.run(replica_step, args=(features, labels))
        return strategy.reduce("sum", losses, axis=None)

    losses = [float(step(*next(batches))) for _ in range(STEPS)]
    np.testing.assert_allclose(weights.numpy(), expected(inputs, targets), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(sums.numpy(), STEPS * inputs.sum(), rtol=1e-4, atol=1e-4)
    if losses[-1] >= losses[0]:
        raise SystemExit(f"expected the loss to fall, got {losses}")
    cores = strategy.num_replicas_in_sync
    print(f"{STEPS} steps on {cores} cores: loss {losses[0]:.4f} to {losses[-1]:.4f}")


def main() -> None:
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    topology = tf.tpu.experimental.initialize_tpu_system(resolver)
    # Replicas that run separately, and, on two processors, in groups.
    for replicas in (2, 4):
        assignment = tf.tpu.experimental.DeviceAssignment.build(topology, num_replicas=replicas)
        strategy = tf.distribute.TPUStrategy(resolver, experimental_device_assignment=assignment)
        train(strategy)
    tf.tpu.experimental.shutdown_tpu_system(resolver)


if __name__ == "__main__":
    main()
