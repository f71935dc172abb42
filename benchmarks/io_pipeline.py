"""Pipelines that io.py measures: batches of WAV clips, decoded by tensorflow-io's native op.

    python benchmarks/io_pipeline.py FOLDER CLIPS SECONDS

Run with the Python of `tf-tpu io setup`, it prints how many batches per second it reads by itself.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any


def make_batches(folder: str, clips: int) -> Any:
    """Returns endless batches of the given number of clips, in the order of their names."""
    import tensorflow as tf
    import tensorflow_io as tfio

    paths = sorted(os.path.join(folder, name) for name in os.listdir(folder))
    dataset = tf.data.Dataset.from_tensor_slices(paths).repeat()
    dataset = dataset.map(
        lambda path: tfio.audio.decode_wav(tf.io.read_file(path), dtype=tf.int16)[:, 0]
    )
    return dataset.batch(clips, drop_remainder=True).prefetch(2)


def make_examples(inputs: int, batch: int) -> Any:
    """Returns an endlessly repeated batch of examples for a perceptron."""
    import tensorflow as tf

    random = tf.random.Generator.from_seed(0)
    x = random.normal([1024, inputs])
    y = random.uniform([1024], 0, 10, tf.int32)
    dataset = tf.data.Dataset.from_tensor_slices({"x": x, "y": y}).repeat()
    return dataset.batch(batch, drop_remainder=True)


def rate_of(dataset: Any, seconds: float) -> float:
    """Returns how many elements per second an endless dataset yields."""
    iterator = iter(dataset)
    for _ in range(20):
        next(iterator)
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        next(iterator)
        count += 1
    return count / (time.perf_counter() - start)


if __name__ == "__main__":
    print(rate_of(make_batches(sys.argv[1], int(sys.argv[2])), float(sys.argv[3])))
