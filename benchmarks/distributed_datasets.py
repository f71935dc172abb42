"""What a distributed dataset costs on cores: its iterator, and steps that read from it.

    python benchmarks/distributed_datasets.py [--replicas 2 8] [--rounds 15] [--json FILE]

Rows, in milliseconds:

* `iterator`: `iter(distributed)`, as for each epoch.
* `in function`: a `tf.function` that takes the iterator, calls `next` and runs a tiny program.
* `eager`: `next(iterator)` outside of functions.

Columns: `ours`; `stock`, TensorFlow's own iterator for several devices (without the patch
`dealt_iterators`); `plain`, the same dataset without a strategy, with the program under
`jit_compile`. They take turns in one process. Prints medians and the ratio of ours to each.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

PEERS = ("ours", "stock", "plain")
PATCH = "dealt_iterators"
# Of each row in a round.
COUNTS = {"iterator": 1, "in function": 40, "eager": 40}

Run = Callable[[], Any]


def rows_of(distribute: Callable[[Any], Any], program: Callable[[Any], Any]) -> dict[str, Run]:
    """Makes what is timed, for one peer."""
    import numpy as np
    import tensorflow as tf

    data = {"x": np.ones((64, 16), np.float32), "y": np.ones(64, np.float32)}
    dataset = tf.data.Dataset.from_tensor_slices(data).repeat().batch(64, drop_remainder=True)
    distributed = distribute(dataset)
    of_function, of_eager = iter(distributed), iter(distributed)

    @tf.function
    def step(iterator: Any) -> Any:
        return program(next(iterator))

    return {
        "iterator": lambda: iter(distributed),
        "in function": lambda: step(of_function),
        "eager": lambda: next(of_eager),
    }


def measure(replicas: int, rounds: int) -> dict[str, dict[str, float]]:
    """Returns each row's milliseconds by peer."""
    import tensorflow as tf

    import tf_tpu_ext
    from tf_tpu_ext import patches

    tf_tpu_ext.configure(cores=replicas)
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver("local")
    tf.tpu.experimental.initialize_tpu_system(resolver)
    strategy = tf.distribute.TPUStrategy(resolver)

    def replica(batch: Any) -> Any:
        return tf.reduce_sum(batch["x"]) + tf.reduce_sum(batch["y"])

    def program(batch: Any) -> Any:
        return strategy.run(replica, args=(batch,))

    distribute = strategy.experimental_distribute_dataset
    rows = {"ours": rows_of(distribute, program)}
    patches.undo(PATCH)
    rows["stock"] = rows_of(distribute, program)
    rows["plain"] = rows_of(lambda dataset: dataset, tf.function(replica, jit_compile=True))
    seconds: dict[str, dict[str, list[float]]] = {
        row: {peer: [] for peer in PEERS} for row in COUNTS
    }
    for turn in range(rounds + 1):
        for peer in PEERS:
            if peer == "ours":
                patches.apply()
            else:
                patches.undo(PATCH)
            for row, count in COUNTS.items():
                start = time.perf_counter()
                for _ in range(count):
                    rows[peer][row]()
                if turn > 0:  # the first traces
                    seconds[row][peer].append((time.perf_counter() - start) / count)
    return {
        row: {peer: statistics.median(taken) * 1e3 for peer, taken in of_peers.items()}
        for row, of_peers in seconds.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--replicas", nargs="+", type=int, default=[2, 8], metavar="N")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        print(json.dumps(measure(arguments.replicas[0], arguments.rounds)))
        return
    results = {}
    print(f"{'ms':18}" + "".join(f"{peer:>9}" for peer in PEERS) + "  ours/stock  ours/plain")
    for replicas in arguments.replicas:
        command = [sys.executable, __file__, "--worker", "--rounds", str(arguments.rounds)]
        done = subprocess.run(
            [*command, "--replicas", str(replicas)], check=True, stdout=subprocess.PIPE, text=True
        )
        results[replicas] = json.loads(done.stdout.splitlines()[-1])
        for row, ms in results[replicas].items():
            ratios = "".join(f"{ms['ours'] / ms[peer]:12.2f}" for peer in PEERS[1:])
            values = "".join(f"{ms[peer]:9.3f}" for peer in PEERS)
            print(f"{row + f', n={replicas}':18}{values}{ratios}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
