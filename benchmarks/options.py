"""What options and profiles cost: steps of steps.py with a TPU's products, watched, or profiled.

    python benchmarks/options.py [--programs mlp convnet ...] [--rounds N] [--smoke]

The variants take turns, some steps each. Prints median milliseconds per step, and ratios to a
step without options. Starting and ending a profile is not part of a step.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tf_tpu_ext  # isort: skip  (before TensorFlow makes its devices)

import tensorflow as tf
from step_programs import Program, programs
from step_tensorflow import make_step

OPTIONS = {
    "usual": tf_tpu_ext.Options(matmul_precision="full"),
    "tpu": tf_tpu_ext.Options(matmul_precision="tpu"),
    "check": tf_tpu_ext.Options(matmul_precision="full", check=True),
}
STEPS_PER_TURN = 10


def prepare(program: Program, strategy: Any, options: tf_tpu_ext.Options) -> Callable[[], float]:
    """Returns a function that runs a step and reads its loss; it has been called once."""
    with options:
        step, read = make_step(program, strategy, dense=True)
        read(step())
    return lambda: read(step())


def take_turns(
    steps: dict[str, Callable[[], float]], rounds: int, folder: str
) -> dict[str, list[float]]:
    """Returns the milliseconds of each variant's steps; those of "profile" run in a profile."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    order, shuffle = list(steps.items()), random.Random(0).shuffle
    for _ in range(rounds):
        # What ran before may have left the caches in another state.
        shuffle(order)
        for name, step in order:
            watched = tf.profiler.experimental.Profile(folder) if name == "profile" else None
            with watched or contextlib.nullcontext():
                for _ in range(STEPS_PER_TURN):
                    start = time.perf_counter()
                    step()
                    times[name].append(1e3 * (time.perf_counter() - start))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--programs", nargs="*")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, few steps")
    options = parser.parse_args()
    tf_tpu_ext.configure(cores=2)
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    tf.tpu.experimental.initialize_tpu_system(resolver)
    strategy = tf.distribute.TPUStrategy(resolver)
    names = [*OPTIONS, "profile"]
    print(f"{'program':12}" + "".join(f"{name + ' ms':>11} {'ratio':>6}" for name in names))
    for name, program in programs(options.smoke).items():
        if options.programs and name not in options.programs:
            continue
        steps = {key: prepare(program, strategy, each) for key, each in OPTIONS.items()}
        steps["profile"] = steps["usual"]
        with tempfile.TemporaryDirectory() as folder:
            times = take_turns(steps, 1 if options.smoke else options.rounds, folder)
        medians = {key: statistics.median(taken) for key, taken in times.items()}
        ratios = (f"{each:11.2f} {each / medians['usual']:6.2f}" for each in medians.values())
        print(f"{name:12}" + "".join(ratios))


if __name__ == "__main__":
    main()
