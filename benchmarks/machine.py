"""The physical limits of this machine: memory bandwidth and float32 operations per second.

    python benchmarks/machine.py [--seconds 0.5] [--json FILE]

Measures with one thread and with one for each processor that the process may use: a copy and a
triad (`a = b + 3 * c`, in blocks that stay in the cache between its two passes) of arrays too large
for any cache, and a large matrix product with each available library; the fastest counts. Prints
the medians of GB/s, read and written, and of GFLOP/s.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

NUMBERS = 1 << 25  # Of float32: 128 MB per array.
BLOCK = 1 << 14
WIDTH = 2048


def seconds_of(function: Callable[[], Any], seconds: float) -> float:
    """Median seconds of a call, over as many calls as fit into the time, but at least three."""
    function()
    taken: list[float] = []
    while sum(taken) < seconds or len(taken) < 3:
        start = time.perf_counter()
        function()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def bandwidth(threads: int, seconds: float, numbers: int) -> dict[str, float]:
    """GB/s of a copy and of a triad with NumPy, which computes without holding the GIL."""
    import numpy as np

    a, b, c = (np.full(numbers, i, np.float32) for i in range(3))
    share = -(-numbers // threads)
    parts = [slice(i * share, (i + 1) * share) for i in range(threads)]

    def copy(part: slice) -> None:
        np.copyto(a[part], b[part])

    def triad(part: slice) -> None:
        scaled = np.empty(BLOCK, np.float32)
        for start in range(part.start, min(part.stop, numbers), BLOCK):
            block = slice(start, min(start + BLOCK, part.stop, numbers))
            size = block.stop - block.start
            np.multiply(c[block], np.float32(3), out=scaled[:size])
            np.add(b[block], scaled[:size], out=a[block])

    with ThreadPoolExecutor(threads) as pool:
        copying = seconds_of(lambda: list(pool.map(copy, parts)), seconds)
        adding = seconds_of(lambda: list(pool.map(triad, parts)), seconds)
    return {"copy": 2 * a.nbytes / copying / 1e9, "triad": 3 * a.nbytes / adding / 1e9}


def products(seconds: float, width: int, libraries: Sequence[str]) -> dict[str, float]:
    """GFLOP/s of a matrix product with NumPy, and with each available library."""
    import numpy as np

    x = np.random.default_rng(0).standard_normal((width, width), np.float32)
    rates = {"numpy": seconds_of(lambda: x @ x, seconds)}
    if "tensorflow" in libraries and importlib.util.find_spec("tensorflow"):
        import tensorflow as tf

        y = tf.constant(x)
        rates["tensorflow"] = seconds_of(lambda: tf.matmul(y, y), seconds)
    if "jax" in libraries and importlib.util.find_spec("jax"):
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        import jax

        z = jax.numpy.asarray(x)
        product = jax.jit(lambda z: z @ z)
        rates["jax"] = seconds_of(lambda: product(z).block_until_ready(), seconds)
    return {name: 2 * width**3 / taken / 1e9 for name, taken in rates.items()}


def probe(threads: int, seconds: float, smoke: bool) -> dict[str, Any]:
    """Measures in a process that may use `threads` processors; every library respects that."""
    command = [sys.executable, __file__, "--worker", str(threads), "--seconds", str(seconds)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [*command, *(["--smoke"] if smoke else [])],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=120 + 20 * seconds,
    )
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def measure(seconds: float = 0.5, smoke: bool = False) -> dict[str, Any]:
    """Returns the limits: `gigabytes` and `gigaflops` per second of all processors, and details."""
    every = sorted({1, len(os.sched_getaffinity(0))})
    details = [probe(threads, seconds, smoke) for threads in every]
    return {
        "processor": _processor(),
        "processors": every[-1],
        "gigabytes": max(max(detail["gigabytes"].values()) for detail in details),
        "gigaflops": max(max(detail["gigaflops"].values()) for detail in details),
        "details": details,
    }


def _processor() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"


def _worker(threads: int, seconds: float, smoke: bool) -> None:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    measured = {
        "threads": threads,
        "gigabytes": bandwidth(threads, seconds, NUMBERS >> 8 if smoke else NUMBERS),
        # Their imports would be the longest part of a smoke run.
        "gigaflops": products(
            seconds, WIDTH >> 3 if smoke else WIDTH, () if smoke else ("tensorflow", "jax")
        ),
    }
    print(json.dumps(measured))


def show(bounds: dict[str, Any]) -> None:
    print(f"{bounds['processor']}, {bounds['processors']} processors")
    for detail in bounds["details"]:
        rates = {f"{name} GB/s": rate for name, rate in detail["gigabytes"].items()}
        rates |= {f"{name} GFLOP/s": rate for name, rate in detail["gigaflops"].items()}
        line = ", ".join(f"{name} {rate:.1f}" for name, rate in rates.items())
        print(f"  {detail['threads']} threads: {line}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=0.5, help="time for each measurement")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        _worker(arguments.worker, arguments.seconds, arguments.smoke)
        return
    bounds = measure(0.01 if arguments.smoke else arguments.seconds, arguments.smoke)
    show(bounds)
    if arguments.json:
        arguments.json.write_text(json.dumps(bounds, indent=1) + "\n")


if __name__ == "__main__":
    main()
