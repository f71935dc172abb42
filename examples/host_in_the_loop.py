"""A training loop in one tf.function, with a host function in the middle of every step.

The cores train a digit classifier. In each step, they pass their losses to the host, which has what
they lack: strings, files, Python. It keeps the hardest digits and returns a learning rate that the
rest of the same step uses. The data set comes with scikit-learn.

    python examples/host_in_the_loop.py [--steps N] [--cores N]
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tf_tpu_ext  # isort: skip  (before TensorFlow makes its devices)

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

BATCH = 64


class Coach:
    """The host's part: it remembers losses and lowers the rate when they stop falling."""

    def __init__(self) -> None:
        self.rate = 0.5
        self.losses: list[float] = []
        self.hardest: dict[int, float] = {}

    def advise(self, indices: np.ndarray, losses: np.ndarray) -> np.float32:
        """Takes what one core saw in a step and returns the learning rate."""
        self.losses.append(float(losses.mean()))
        worst = int(losses.argmax())
        self.hardest[int(indices[worst])] = float(losses[worst])
        if len(self.losses) % 400 == 0 and np.mean(self.losses[-200:]) > 0.9 * np.mean(
            self.losses[-400:-200]
        ):
            self.rate *= 0.7
        return np.float32(self.rate)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--cores", type=int, default=8)
    options = parser.parse_args()
    tf_tpu_ext.configure(cores=options.cores)

    resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
    strategy = tf.distribute.TPUStrategy(resolver)

    digits = load_digits()
    order = np.random.RandomState(0).permutation(len(digits.target))
    images = (digits.data[order] / 16.0).astype(np.float32)
    labels = digits.target[order].astype(np.int32)
    training = (np.arange(1408, dtype=np.int32), images[:1408], labels[:1408])
    dataset = tf.data.Dataset.from_tensor_slices(training).shuffle(1408, seed=1).repeat()
    iterator = iter(strategy.experimental_distribute_dataset(dataset.batch(BATCH, True)))

    initial = np.random.RandomState(1).normal(scale=0.1, size=(64, 10)).astype(np.float32)
    with strategy.scope():
        weights = tf.Variable(initial, aggregation=tf.VariableAggregation.MEAN)
        bias = tf.Variable(tf.zeros([10]), aggregation=tf.VariableAggregation.MEAN)
    coach = Coach()

    def ask_the_host(indices: tf.Tensor, losses: tf.Tensor) -> tf.Tensor:
        rate = tf.numpy_function(coach.advise, [indices, losses], tf.float32)
        return tf.ensure_shape(rate, [])

    def replica_step(indices: tf.Tensor, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = x @ weights + bias
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, [weights, bias])
        rate = tf_tpu_ext.tpu.outside_compilation(ask_the_host, indices, losses)
        context = tf.distribute.get_replica_context()
        # All cores must continue with the same rate.
        rate = context.all_reduce("MEAN", rate)
        for variable, gradient in zip([weights, bias], gradients, strict=True):
            variable.assign_sub(rate * context.all_reduce("MEAN", gradient))
        return loss

    @tf.function
    def train(steps: tf.Tensor) -> None:
        for _ in tf.range(steps):
            strategy.run(replica_step, args=next(iterator))

    train(tf.constant(options.steps))
    right = (images[1408:] @ weights.numpy() + bias.numpy()).argmax(axis=1) == labels[1408:]
    hardest = sorted(coach.hardest, key=coach.hardest.__getitem__)[-5:]
    print(f"The host was asked {len(coach.losses)} times; the rate is {coach.rate:.3f} now")
    print(f"The hardest digits: {[int(labels[i]) for i in hardest]}")
    print(f"Held-out accuracy: {right.mean():.4f}")


if __name__ == "__main__":
    main()
