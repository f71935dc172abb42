"""What options cost: steps of steps.py with and without `matmul_precision="tpu"` and `check=True`.

    python benchmarks/options.py [--programs mlp convnet ...] [--steps N] [--smoke]

The variants take turns. Prints median milliseconds per step, and ratios to a step without options.
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

OPTIONS = {
    "usual": tf_tpu_ext.Options(matmul_precision="full"),
    "tpu": tf_tpu_ext.Options(matmul_precision="tpu"),
    "check": tf_tpu_ext.Options(matmul_precision="full", check=True),
}


def prepare(program: Program, strategy: Any, options: tf_tpu_ext.Options) -> Callable[[], float]:
    """Returns a function that runs a step and reads its loss; it has been called once."""
    with options:
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
    print(f"{'program':12}" + "".join(f"{name + ' ms':>10} {'ratio':>6}" for name in OPTIONS))
    for name, program in programs(options.smoke).items():
        if options.programs and name not in options.programs:
            continue
        steps = {key: prepare(program, strategy, each) for key, each in OPTIONS.items()}
        times: dict[str, list[float]] = {key: [] for key in OPTIONS}
        for _ in range(3 if options.smoke else options.steps):
            for key, step in steps.items():
                start = time.perf_counter()
                step()
                times[key].append(1e3 * (time.perf_counter() - start))
        medians = {key: statistics.median(taken) for key, taken in times.items()}
        ratios = (f"{each:10.2f} {each / medians['usual']:6.2f}" for each in medians.values())
        print(f"{name:12}" + "".join(ratios))


if __name__ == "__main__":
    main()
