"""What reading through tf_tpu_ext.io.dataset costs: elements per second, and steps of 8 cores.

    python benchmarks/io.py [--rounds 5] [--seconds 4]

Reads WAV clips, in batches of 1 MB and of 10 KB, in one TensorFlow 2.17 process and through this
package; and trains a perceptron on 8 cores from memory and through this package. The variants take
turns. Needs the environment of `tf-tpu io setup`.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import statistics
import subprocess
import tempfile
import time
import wave
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tf_tpu_ext.io  # isort: skip  (before TensorFlow makes its devices)

import io_pipeline
import numpy as np
import step_programs
import step_tensorflow
import tensorflow as tf

from tf_tpu_ext.io import _environment

PIPELINE = pathlib.Path(io_pipeline.__file__).resolve()
# 16-bit samples in a clip, clips in a batch, and the least share of the speed of one process.
BATCHES = {"1 MB": (1 << 14, 32, 0.8), "10 KB": (512, 10, 0.5)}
CLIPS = 64
LARGEST_LOSS = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    for name, (samples, clips, least) in BATCHES.items():
        with tempfile.TemporaryDirectory() as folder:
            write_clips(pathlib.Path(folder), samples)
            one, here = [], []
            for _ in range(options.rounds):
                one.append(rate_in_one_process(folder, clips, options.seconds))
                dataset = tf_tpu_ext.io.dataset(f"{PIPELINE}:make_batches", folder, clips)
                here.append(io_pipeline.rate_of(dataset, options.seconds))
                del dataset
        show(f"batches of {name} a second", one, here)
        print(f"  wanted: at least {least:.0%} of one process")
    memory, here = step_rates(options.rounds, options.seconds)
    show("steps of 8 cores a second, from memory", memory, here)
    print(f"  wanted: at least {1 - LARGEST_LOSS:.0%}")


def show(what: str, one: list[float], here: list[float]) -> None:
    ratios = [b / a for a, b in zip(one, here, strict=True)]
    print(
        f"{what}: {statistics.median(one):.1f}, through here {statistics.median(here):.1f}: "
        f"{statistics.median(ratios):.0%} ({min(ratios):.0%} to {max(ratios):.0%})",
        flush=True,
    )


def write_clips(folder: pathlib.Path, samples: int) -> None:
    generator = np.random.default_rng(0)
    for number in range(CLIPS):
        with wave.open(str(folder / f"{number:03}.wav"), "wb") as file:
            file.setparams((1, 2, 16000, 0, "NONE", ""))
            file.writeframes(generator.integers(-9999, 9999, samples).astype("<i2").tobytes())


def rate_in_one_process(folder: str, clips: int, seconds: float) -> float:
    done = subprocess.run(
        [_environment.interpreter(None), PIPELINE, folder, str(clips), str(seconds)],
        env=_environment.variables(own=True),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(done.stdout.split()[-1])


def step_rates(rounds: int, seconds: float) -> tuple[list[float], list[float]]:
    """Steps per second of a perceptron on 8 cores, fed from memory and through this package."""
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    tf.tpu.experimental.initialize_tpu_system(resolver)
    strategy = tf.distribute.TPUStrategy(resolver)
    program = step_programs.programs(smoke=False)["mlp"]
    inputs = program.data()["x"].shape[1]
    memory = io_pipeline.make_examples(inputs, program.batch)
    there = tf_tpu_ext.io.dataset(f"{PIPELINE}:make_examples", inputs, program.batch)
    replica_step = step_tensorflow.make_replica_step(program, strategy, dense=False)

    @tf.function
    def train(batch: object) -> object:
        return strategy.reduce("SUM", strategy.run(replica_step, args=(batch,)), axis=None)

    def rate(dataset: tf.data.Dataset) -> float:
        batches = iter(strategy.experimental_distribute_dataset(dataset))
        return rate_of_steps(lambda: train(next(batches)), seconds)

    rates: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        rates[0].append(rate(memory))
        rates[1].append(rate(there))
    return rates


def rate_of_steps(step: Callable[[], object], seconds: float) -> float:
    for _ in range(10):
        step()
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        step()
        count += 1
    return count / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
