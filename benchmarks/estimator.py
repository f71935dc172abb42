"""What TPUEstimator costs: steps per second on virtual cores and of the same model on the CPU.

Both train the same model with the same global batch: with use_tpu=True as a loop of steps on the
cores, fed by infeed; with use_tpu=False as plain TensorFlow, with one session run per step.

    python benchmarks/estimator.py [--cores 8] [--steps 300] [--models mlp encoder convolution]

For each model, prints the steps per second both ways, and their ratio. The first steps, with
tracing and compilation, are not counted.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tf_tpu_ext  # isort: skip  (before TensorFlow makes its devices)

import numpy as np
import tensorflow as tf

import tf_tpu_ext.estimator as te

v1 = tf.compat.v1
BATCH, LOOP = 256, 50
SHAPES = {"mlp": [256], "encoder": [16, 64], "convolution": [16, 16, 8]}


def variable(name: str, shape: list[int]) -> tf.Tensor:
    return v1.get_variable(name, shape, initializer=v1.glorot_uniform_initializer(seed=1))


def mlp(x: tf.Tensor) -> tf.Tensor:
    for layer in range(3):
        x = tf.nn.relu(tf.matmul(x, variable(f"dense{layer}", [x.shape[-1], 512])))
    return x


def encoder(x: tf.Tensor) -> tf.Tensor:
    width = x.shape[-1]
    for layer in range(2):
        q, k, v = (tf.matmul(x, variable(f"{name}{layer}", [width, width])) for name in "qkv")
        x += tf.matmul(tf.nn.softmax(tf.matmul(q, k, transpose_b=True) / width**0.5), v)
        inner = tf.nn.gelu(tf.matmul(x, variable(f"in{layer}", [width, 4 * width])))
        x += tf.matmul(inner, variable(f"out{layer}", [4 * width, width]))
    return tf.reduce_mean(x, axis=1)


def convolution(x: tf.Tensor) -> tf.Tensor:
    for layer in range(2):
        kernel = variable(f"conv{layer}", [3, 3, x.shape[-1], 32])
        x = tf.nn.relu(tf.nn.conv2d(x, kernel, 2, "SAME"))
    return tf.reduce_mean(x, axis=[1, 2])


def model_fn(features: tf.Tensor, labels: tf.Tensor, mode: str, params: dict[str, Any]) -> Any:
    x = {"mlp": mlp, "encoder": encoder, "convolution": convolution}[params["model"]](features)
    logits = tf.matmul(x, variable("logits", [x.shape[-1], 10]))
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
    optimizer = v1.train.AdamOptimizer(1e-3)
    if params["use_tpu"]:
        optimizer = v1.tpu.CrossShardOptimizer(optimizer)
    train_op = optimizer.minimize(loss, v1.train.get_global_step())
    return te.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


class Clock(v1.train.SessionRunHook):
    """Measures the time from the end of the first run to the end of the last."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.ends.append(time.perf_counter())


def steps_per_second(model: str, use_tpu: bool, steps: int) -> float:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4 * BATCH, *SHAPES[model])).astype(np.float32)
    y = rng.integers(0, 10, 4 * BATCH).astype(np.int32)

    def input_fn(params: dict[str, Any]) -> tf.data.Dataset:
        dataset = tf.data.Dataset.from_tensor_slices((x, y)).repeat()
        return dataset.batch(params["batch_size"], drop_remainder=True).prefetch(4)

    config = te.RunConfig(
        model_dir=tempfile.mkdtemp(),
        save_checkpoints_steps=10**9,
        log_step_count_steps=None,
        tpu_config=te.TPUConfig(iterations_per_loop=LOOP, num_shards=tf_tpu_ext.machine().cores),
    )
    estimator = te.TPUEstimator(
        model_fn, use_tpu=use_tpu, config=config, params={"model": model}, train_batch_size=BATCH
    )
    clock = Clock()
    estimator.train(input_fn, max_steps=steps + LOOP, hooks=[clock])
    first = 0 if use_tpu else LOOP - 1
    return steps / (clock.ends[-1] - clock.ends[first])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cores", type=int, default=8)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--models", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    options = parser.parse_args()
    tf_tpu_ext.configure(cores=options.cores)
    v1.logging.set_verbosity(v1.logging.ERROR)
    print(f"{options.cores} cores, global batch {BATCH}: steps/s with use_tpu on and off, ratio")
    for model in options.models:
        on, off = (steps_per_second(model, use_tpu, options.steps) for use_tpu in (True, False))
        print(f"{model:12} {on:8.1f} {off:8.1f} {on / off:6.2f}", flush=True)


if __name__ == "__main__":
    main()
