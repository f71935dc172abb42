"""How long deleting a dataset's iterator takes, and the throughput of its input pipeline.

Each line is one process: stock TensorFlow, then with the patches of tf_tpu_ext.

Example:
    $ python benchmarks/iterator_deletion.py --cores 8 --repetitions 20
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

ITERATORS = ("plain", "mirrored", "tpu")
LIMIT_SECONDS = 0.2


def logical_cpus(tf: Any, count: int) -> list[str]:
    devices = [tf.config.LogicalDeviceConfiguration()] * count
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], devices)
    return [f"/cpu:{i}" for i in range(count)]


def distributor(tf: Any, kind: str, cores: int) -> Callable[[Any], Any]:
    """Returns a function that turns a dataset into the one that is iterated over."""
    if kind == "plain":
        return lambda dataset: dataset
    if kind == "mirrored":
        strategy = tf.distribute.MirroredStrategy(logical_cpus(tf, cores))
    else:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="local")
        tf.tpu.experimental.initialize_tpu_system(resolver)
        strategy = tf.distribute.TPUStrategy(resolver)
    return lambda dataset: strategy.experimental_distribute_dataset(dataset)


def cheap(tf: Any, batch: int) -> Any:
    """As fast as tf.data's machinery can go."""
    numbers = tf.data.Dataset.range(10**12).map(lambda i: tf.cast(i, tf.float32) * 2.0)
    return numbers.batch(batch, drop_remainder=True).prefetch(tf.data.AUTOTUNE)


def waiting(tf: Any, batch: int) -> Any:
    """Elements that wait 5 ms each, as for a disk: one call at a time delivers 200 per second."""

    def wait(i: Any) -> Any:
        def sleep(i: Any) -> Any:
            time.sleep(0.005)
            return i

        result = tf.numpy_function(sleep, [i], tf.int64)
        result.set_shape([])
        return result

    numbers = tf.data.Dataset.range(10**12).map(wait, num_parallel_calls=tf.data.AUTOTUNE)
    return numbers.batch(batch, drop_remainder=True).prefetch(tf.data.AUTOTUNE)


def computing(tf: Any, batch: int) -> Any:
    """Elements that keep the processor busy: a few matrix products each."""

    def compute(i: Any) -> Any:
        matrix = tf.fill([64, 64], tf.cast(i % 7, tf.float32) / 64.0)
        for _ in range(4):
            matrix = tf.linalg.matmul(matrix, matrix) / 64.0
        return tf.reduce_sum(matrix)

    numbers = tf.data.Dataset.range(10**12).map(compute, num_parallel_calls=tf.data.AUTOTUNE)
    return numbers.batch(batch, drop_remainder=True).prefetch(tf.data.AUTOTUNE)


PIPELINES = {"cheap": cheap, "waiting": waiting, "computing": computing}


def consume(iterator: Iterator[Any], seconds: float, pause: float = 0.0) -> int:
    """Takes elements for a given time; returns how many."""
    count = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        next(iterator)
        count += 1
        if pause:
            time.sleep(pause)
    return count


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    import tensorflow as tf

    import tf_tpu_ext  # noqa: F401
    from tf_tpu_ext import patches

    if arguments.stock:
        patches.undo_all()
    distribute = distributor(tf, arguments.iterator, arguments.cores)
    batch = arguments.cores
    deletions = []
    for _ in range(arguments.repetitions):
        iterator = iter(distribute(cheap(tf, batch)))
        consume(iterator, arguments.seconds, pause=0.005)
        start = time.monotonic()
        del iterator
        deletions.append(time.monotonic() - start)
    delivered = {}
    for name, pipeline in PIPELINES.items():
        iterator = iter(distribute(pipeline(tf, batch)))
        consume(iterator, arguments.throughput_seconds / 2)
        count = consume(iterator, arguments.throughput_seconds)
        delivered[name] = count * batch / arguments.throughput_seconds
        del iterator
    return {"deletions": deletions, "elements_per_second": delivered}


def report(iterator: str, stock: bool, result: dict[str, Any]) -> str:
    deletions = result["deletions"]
    late = sum(seconds > LIMIT_SECONDS for seconds in deletions)
    delivered = "  ".join(f"{k} {v:9.0f}/s" for k, v in result["elements_per_second"].items())
    return (
        f"{iterator:9} {'stock' if stock else 'tf_tpu_ext':10} {len(deletions):4} deletions: "
        f"median {statistics.median(deletions):7.3f} s  longest {max(deletions):7.3f} s  "
        f"over {LIMIT_SECONDS} s {late:4}   {delivered}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterator", choices=ITERATORS, action="append")
    parser.add_argument("--cores", type=int, default=8)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each iterator runs")
    parser.add_argument("--throughput-seconds", type=float, default=8.0)
    parser.add_argument("--stock", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.json:
        arguments.iterator = arguments.iterator[0]
        print(json.dumps(measure(arguments)))
        return
    for iterator in arguments.iterator or ITERATORS:
        for stock in (True, False):
            command = [sys.executable, __file__, "--json", "--iterator", iterator]
            for option in ("cores", "repetitions", "seconds", "throughput_seconds"):
                command += [f"--{option.replace('_', '-')}", str(getattr(arguments, option))]
            done = subprocess.run(
                command + ["--stock"] * stock, check=True, stdout=subprocess.PIPE, text=True
            )
            print(report(iterator, stock, json.loads(done.stdout.splitlines()[-1])), flush=True)


if __name__ == "__main__":
    main()
