"""Trains on 8 virtual TPU cores, on WAV files that tensorflow-io's native ops read.

This program "speaks" each digit: two gliding resonances, at a random pitch and speed, with noise.
spoken_digits_pipeline.py reads the recordings in the environment that `tf-tpu io setup` has
created, where those ops load.

    python examples/spoken_digits.py [--epochs N]
"""

from __future__ import annotations

import argparse
import os
import pathlib
import tempfile
import wave

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tf_tpu_ext.io  # isort: skip  (before TensorFlow makes its devices)

import keras
import numpy as np
import tensorflow as tf

PIPELINE = pathlib.Path(__file__).resolve().parent / "spoken_digits_pipeline.py"
RATE, SAMPLES = 8000, 4096
TRAINED, HELD_OUT, BATCH = 512, 128, 64


def speak(digit: int, generator: np.random.Generator) -> np.ndarray:
    """Returns a recording as 16-bit samples: a voice whose resonances encode the digit."""
    count = generator.integers(SAMPLES // 2, SAMPLES)
    time = np.arange(count) / RATE
    glide = np.linspace(0, 1, count)
    # From one of five vowels to another.
    vowels = np.array([[300, 900], [400, 1900], [700, 1200], [500, 2500], [800, 3000]])
    first, last = vowels[digit % 5], vowels[(digit + 1 + digit // 5) % 5]
    voice = np.zeros(count)
    pitch = generator.uniform(90, 220)
    for harmonic in range(1, int(RATE / 2 / pitch)):
        loudness = sum(
            np.exp(-(((harmonic * pitch - start - (end - start) * glide) / 150) ** 2))
            for start, end in zip(first, last, strict=True)
        )
        voice += loudness * np.sin(2 * np.pi * harmonic * pitch * time)
    voice += generator.normal(0, 0.1, count)
    return (voice / np.abs(voice).max() * 30000).astype("<i2")


def record(folder: pathlib.Path) -> tuple[list[str], list[int]]:
    """Writes the recordings and returns their paths and digits."""
    generator = np.random.default_rng(0)
    paths, digits = [], []
    for number in range(TRAINED + HELD_OUT):
        digits.append(int(generator.integers(10)))
        paths.append(str(folder / f"{number}.wav"))
        with wave.open(paths[-1], "wb") as file:
            file.setparams((1, 2, RATE, 0, "NONE", ""))
            file.writeframes(speak(digits[-1], generator).tobytes())
    return paths, digits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()

    resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
    strategy = tf.distribute.TPUStrategy(resolver)
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.Conv1D(64, 5, strides=2, activation="relu"),
                keras.layers.Conv1D(64, 5, strides=2, activation="relu"),
                keras.layers.GlobalMaxPooling1D(),
                keras.layers.Dense(10),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(3e-3), loss, metrics=["accuracy"])

    with tempfile.TemporaryDirectory() as folder:
        paths, digits = record(pathlib.Path(folder))
        training, held_out = (
            tf_tpu_ext.io.dataset(f"{PIPELINE}:make_dataset", paths[part], digits[part], SAMPLES)
            .batch(BATCH, drop_remainder=True)
            .cache()
            for part in (slice(TRAINED), slice(TRAINED, None))
        )
        model.fit(training, epochs=options.epochs, verbose=2)
        accuracy = model.evaluate(held_out, verbose=0)[1]
    print(
        f"Held-out accuracy: {accuracy:.4f} on {strategy.num_replicas_in_sync} virtual TPU cores, "
        "from WAV files that tensorflow-io decoded"
    )


if __name__ == "__main__":
    main()
