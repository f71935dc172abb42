"""What `Options(matmul_precision="tpu")` costs: steps of steps.py with and without it.

    python benchmarks/matmul_precision.py [--programs mlp convnet ...] [--steps N] [--smoke]

Prints milliseconds a step in full precision and as a TPU computes, the median of many, in turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tf_tpu_ext  # isort: skip  (before TensorFlow makes its devices)

import tensorflow as tf
from step_programs import Program, programs
from step_tensorflow import make_step


def prepare(program: Program, strategy: Any, precision: Any) -> Callable[[], float]:
    """Returns a function that makes a step and reads its loss; it has been called once."""
    with tf_tpu_ext.Options(matmul_precision=precision):
        step, read = make_step(program, strategy, dense=True)
        read(step())
    return lambda: read(step())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--programs", nargs="*")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, few steps")
    options = parser.parse_args()
    tf_tpu_ext.configure(cores=2)
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    tf.tpu.experimental.initialize_tpu_system(resolver)
    strategy = tf.distribute.TPUStrategy(resolver)
    print(f"{'program':12} {'full ms':>9} {'tpu ms':>9} {'ratio':>6}")
    for name, program in programs(options.smoke).items():
        if options.programs and name not in options.programs:
            continue
        steps = [prepare(program, strategy, precision) for precision in ("full", "tpu")]
        times: list[list[float]] = [[], []]
        for _ in range(3 if options.smoke else options.steps):
            for step, taken in zip(steps, times, strict=True):
                start = time.perf_counter()
                step()
                taken.append(1e3 * (time.perf_counter() - start))
        full, tpu = map(statistics.median, times)
        print(f"{name:12} {full:9.2f} {tpu:9.2f} {tpu / full:6.2f}")


if __name__ == "__main__":
    main()
