"""Kills a training run repeatedly, and checks that it ends as if nothing had happened.

A process trains a TPUEstimator on virtual cores. It is killed (SIGKILL) at random moments and
restarted, until it finishes. The final weights and the optimizer's state must be bit for bit those
of a process that was left alone: every step sees the same batch, so repeating steps after a
checkpoint changes nothing.

    python tools/kill_recovery.py [--kills 20] [--cores 8] [--seed 0]

The exit code is 0 if they are.
"""

from __future__ import annotations

import argparse
import pathlib
import random
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np

STEPS, LOOP = 600, 5


def train(folder: str, cores: int, pause: float) -> None:
    """Trains up to the last step, from the last checkpoint in the folder."""
    import tf_tpu_ext  # isort: skip  (before TensorFlow makes its devices)

    import tensorflow as tf

    import tf_tpu_ext.estimator as te

    tf_tpu_ext.configure(cores=cores)
    v1: Any = tf.compat.v1
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 8)).astype(np.float32)
    y = np.tanh(x @ rng.normal(size=(8, 1))).astype(np.float32)

    class Pause(v1.train.SessionRunHook):
        def after_run(self, run_context: object, run_values: object) -> None:
            time.sleep(pause)

    def input_fn(params: dict[str, int]) -> tf.data.Dataset:
        dataset = tf.data.Dataset.from_tensor_slices((x, y)).repeat()
        return dataset.batch(params["batch_size"], drop_remainder=True)

    def model_fn(features: tf.Tensor, labels: tf.Tensor, mode: str, params: object) -> object:
        initial = v1.random_normal_initializer(stddev=0.1, seed=1)
        weights = v1.get_variable("w", [8, 1], initializer=initial)
        loss = tf.reduce_mean((tf.tanh(tf.matmul(features, weights)) - labels) ** 2)
        optimizer = v1.tpu.CrossShardOptimizer(v1.train.AdamOptimizer(0.001))
        train_op = optimizer.minimize(loss, v1.train.get_global_step())
        return te.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    config = te.RunConfig(
        model_dir=folder,
        save_checkpoints_steps=4 * LOOP,
        tpu_config=te.TPUConfig(iterations_per_loop=LOOP, num_shards=cores),
    )
    estimator = te.TPUEstimator(model_fn, config=config, params={}, train_batch_size=64)
    estimator.train(input_fn, max_steps=STEPS, hooks=[Pause()])


def start(folder: pathlib.Path, cores: int, pause: float) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, __file__, "--train", folder, "--cores", str(cores), "--pause", str(pause)],
        stderr=subprocess.DEVNULL,
    )


def saved_step(folder: pathlib.Path) -> int:
    """Returns the step of the checkpoint from which a restart continues."""
    state = folder / "checkpoint"
    if not state.exists():
        return 0
    return int(state.read_text().split('"')[1].rpartition("-")[2])


def saved(folder: pathlib.Path) -> dict[str, np.ndarray]:
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(folder))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--cores", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--longest", type=float, default=9.0, help="seconds a process lives")
    parser.add_argument("--pause", type=float, default=0.1, help="seconds after each loop")
    parser.add_argument("--train", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(options.train, options.cores, options.pause)
        return 0
    moments = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        alone, killed = pathlib.Path(name) / "alone", pathlib.Path(name) / "killed"
        if start(alone, options.cores, 0.0).wait() != 0:
            print("the undisturbed training failed")
            return 1
        step = 0
        for kill in range(options.kills):
            process = start(killed, options.cores, options.pause)
            try:
                code = process.wait(moments.uniform(0.0, options.longest))
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
            now = saved_step(killed)
            print(f"kill {kill + 1}: code {code}, step {step} -> {now}", flush=True)
            if now < step or code not in (0, -9):
                print("steps were lost, or the training failed")
                return 1
            step = now
        if start(killed, options.cores, 0.0).wait() != 0:
            print("the last training failed")
            return 1
        expected, found = saved(alone), saved(killed)
    same = expected.keys() == found.keys() and all(
        np.array_equal(expected[name], found[name]) for name in expected
    )
    print(f"{len(expected)} variables {'are the same' if same else 'DIFFER'} after {STEPS} steps")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
