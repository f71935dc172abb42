"""Trains a convolutional digit classifier with Keras on 8 virtual TPU cores and on a plain CPU.

Both runs see the same data in the same order and start from the same weights, so they end with the
same accuracy. The data set (1,797 handwritten digits) comes with scikit-learn.

    python examples/keras_digits.py [--epochs N] [--cores N]
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tf_tpu_ext  # isort: skip  (before TensorFlow makes its devices)

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

BATCH = 64


def load() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Returns (images, labels) for training and held-out (images, labels)."""
    digits = load_digits()
    order = np.random.RandomState(0).permutation(len(digits.target))
    images = (digits.images[order, ..., np.newaxis] / 16.0).astype(np.float32)
    labels = digits.target[order].astype(np.int32)
    return (images[:1408], labels[:1408]), (images[1408:], labels[1408:])


def build() -> keras.Model:
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.layers.Input((8, 8, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(2e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def train(model: keras.Model, epochs: int) -> float:
    """Trains the model and returns its accuracy on held-out data."""
    training, held_out = load()
    batches = tf.data.Dataset.from_tensor_slices(training).batch(BATCH, drop_remainder=True)
    model.fit(batches, epochs=epochs)
    return float(model.evaluate(*held_out, batch_size=BATCH, verbose=0)[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--cores", type=int, default=8)
    options = parser.parse_args()
    tf_tpu_ext.configure(cores=options.cores)

    resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
    strategy = tf.distribute.TPUStrategy(resolver)
    print(f"Training on {strategy.num_replicas_in_sync} virtual TPU cores")
    with strategy.scope():
        model = build()
    on_cores = train(model, options.epochs)

    print("Training on plain CPU")
    on_cpu = train(build(), options.epochs)

    print(
        f"Held-out accuracy: {on_cores:.4f} on {strategy.num_replicas_in_sync} virtual TPU cores, "
        f"{on_cpu:.4f} on plain CPU"
    )


if __name__ == "__main__":
    main()
