"""What a host call in the middle of a compiled program costs, compared with JAX's callbacks.

Each case runs in a compiled loop, ours through `outside_compilation` in a tf.function on virtual
cores, JAX's through `jax.pure_callback` under `jax.jit`. They take turns in one process.

    pip install '.[cpu,bench]'
    python benchmarks/host_calls.py [--iterations 10000] [--rounds 7] [--json FILE] [--plot FILE]

For each case, prints the median time of one call in microseconds and its spread (the range of the
middle half), and the ratio to JAX's. `host graph` is ours with `fold_host_calls=False`: the cost of
clusters that the program can't call by itself. `no result, device's part` is the time that the
core's thread spends handing over a call without a result, as `transfer_stats` reports it: such
calls run in parallel with the program. `--smoke` is a short run that only shows that everything
works.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tf_tpu_ext  # isort: skip  (before TensorFlow makes its devices)

import numpy as np
import tensorflow as tf

REPLICAS = 8
LARGE = 1 << 24  # float32 numbers: 64 MB
DEVICES_PART = "no result, device's part"


@dataclasses.dataclass
class Case:
    """One thing to measure: `run` makes `calls` calls, once compiled."""

    name: str
    calls: int
    run: Callable[[], Any]
    seconds: list[float] = dataclasses.field(default_factory=list)

    def microseconds(self) -> list[float]:
        return sorted(seconds / self.calls * 1e6 for seconds in self.seconds)


def ours(
    body: Callable[[Any], Any], x: Any, iterations: int, replicas: int = 1
) -> Callable[[], Any]:
    """A step that calls `body` in a loop on each of `replicas` cores."""

    def replica(x: Any) -> Any:
        loop = tf.while_loop(
            lambda i, _: i < iterations,
            lambda i, x: (i + 1, body(x)),
            (0, x),
            maximum_iterations=None,
        )
        return tf.reduce_sum(loop[1])

    @tf.function(autograph=False)
    def step(x: Any) -> Any:
        return tf.compat.v1.tpu.replicate(replica, [[x]] * replicas)

    return lambda: [float(output[0]) for output in step(x)]


def outside(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *inputs: tf_tpu_ext.tpu.outside_compilation(function, *inputs)


def on_numpy(x: Any) -> Any:
    return tf.ensure_shape(tf.numpy_function(lambda a: a + np.float32(1), [x], tf.float32), x.shape)


def effect(x: Any) -> Any:
    def check(y: Any) -> None:
        tf.debugging.Assert(y >= 0.0, [y])

    tf_tpu_ext.tpu.outside_compilation(check, x)
    return x + 1.0


def our_cases(iterations: int, large: int) -> list[Case]:
    scalar = tf.constant(0.0)
    block = tf.ones([large])
    few = 5
    cases = [
        Case("identity", iterations, ours(outside(tf.identity), scalar, iterations)),
        Case(
            f"identity, {REPLICAS} replicas",
            iterations * REPLICAS,
            ours(outside(tf.identity), scalar, iterations, REPLICAS),
        ),
        Case("numpy function", iterations, ours(outside(on_numpy), scalar, iterations)),
        Case("64 MB there and back", few, ours(outside(lambda x: x + 1.0), block, few)),
        Case(
            "64 MB there",
            few,
            ours(lambda s: outside(lambda y, s: y[0] + s)(block, s), scalar, few),
        ),
        Case("no result", iterations, ours(effect, scalar, iterations)),
        Case("no call", iterations, ours(lambda x: x + 1.0, scalar, iterations)),
    ]
    tf_tpu_ext.configure(fold_host_calls=False)
    slow = max(iterations // 10, 1)
    graph = Case("scalar, host graph", slow, ours(outside(lambda x: x + 1.0), scalar, slow))
    graph.run()  # Traced while clusters are not folded.
    tf_tpu_ext.configure(fold_host_calls=True)
    return [*cases, graph]


def jax_cases(iterations: int, large: int) -> list[Case]:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax
    import jax.numpy as jnp

    def loop(body: Callable[[Any], Any], x: Any, calls: int) -> Callable[[], Any]:
        step = jax.jit(lambda x: jnp.sum(jax.lax.fori_loop(0, calls, lambda i, x: body(x), x)))
        return lambda: float(step(x))

    def callback(function: Callable[..., Any], shape: Any) -> Callable[..., Any]:
        return lambda *inputs: jax.pure_callback(function, shape, *inputs)

    scalar = jax.ShapeDtypeStruct((), np.float32)
    block = jax.ShapeDtypeStruct((large,), np.float32)
    zero = jnp.zeros((), jnp.float32)
    ones = jnp.ones((large,), jnp.float32)
    few, slow = 5, max(iterations // 10, 1)

    def debug(x: Any) -> Any:
        jax.debug.callback(lambda a: None, x)
        return x + 1.0

    return [
        Case("identity", slow, loop(callback(lambda a: a, scalar), zero, slow)),
        Case(
            "numpy function",
            slow,
            loop(callback(lambda a: np.asarray(a) + np.float32(1), scalar), zero, slow),
        ),
        Case(
            "64 MB there and back",
            few,
            loop(callback(lambda a: np.asarray(a) + np.float32(1), block), ones, few),
        ),
        Case(
            "64 MB there",
            few,
            loop(lambda s: callback(lambda a, s: np.asarray(a)[0] + s, scalar)(ones, s), zero, few),
        ),
        Case("no result", slow, loop(debug, zero, slow)),
    ]


def measure(cases: list[Case], rounds: int) -> None:
    for case in cases:
        case.run()
    for _ in range(rounds):
        for case in cases:
            start = time.perf_counter()
            case.run()
            case.seconds.append(time.perf_counter() - start)


def devices_part() -> float:
    """Microseconds that the cores' threads have spent on a call without a result."""
    clusters = [
        cluster
        for cluster in tf_tpu_ext.transfer_stats().clusters
        if cluster.calls and not cluster.bytes_to_device
    ]
    calls = sum(cluster.calls for cluster in clusters)
    return sum(cluster.waiting_seconds for cluster in clusters) / calls * 1e6


def spread(values: list[float]) -> float:
    return values[len(values) * 3 // 4] - values[len(values) // 4]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--iterations", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--plot", type=pathlib.Path)
    arguments = parser.parse_args()
    iterations = 100 if arguments.smoke else arguments.iterations
    rounds = 2 if arguments.smoke else arguments.rounds
    large = 1 << 16 if arguments.smoke else LARGE

    tf_tpu_ext.configure(cores=REPLICAS)
    tf_tpu_ext.tpu.initialize_system()
    mine = our_cases(iterations, large)
    peers = {case.name: case for case in jax_cases(iterations, large)}
    measure([*mine, *peers.values()], rounds)

    results = []
    titles = ("ours", "spread", "JAX", "spread", "ratio")
    print(f"{'microseconds a call':24} " + " ".join(f"{title:>10}" for title in titles))
    for case in mine:
        times = case.microseconds()
        result: dict[str, Any] = {
            "case": case.name,
            "ours": statistics.median(times),
            "spread": spread(times),
        }
        line = f"{case.name:24} {result['ours']:10.2f} {result['spread']:10.2f}"
        if case.name in peers:
            theirs = peers[case.name].microseconds()
            result |= {"jax": statistics.median(theirs), "jax_spread": spread(theirs)}
            result["ratio"] = result["ours"] / result["jax"]
            line += f" {result['jax']:10.2f} {result['jax_spread']:10.2f} {result['ratio']:10.3f}"
        results.append(result)
        print(line)
    part = devices_part()
    results.append({"case": DEVICES_PART, "ours": part})
    print(f"{DEVICES_PART:24} {part:10.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    if arguments.plot:
        plot(results, arguments.plot)


def plot(results: list[dict[str, Any]], path: pathlib.Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    compared = [result for result in results if "jax" in result]
    figure, axes = pyplot.subplots(figsize=(7, 3.5))
    rows = np.arange(len(compared))
    axes.barh(rows - 0.2, [result["ours"] for result in compared], 0.4, label="tf_tpu_ext")
    axes.barh(rows + 0.2, [result["jax"] for result in compared], 0.4, label="JAX")
    axes.set_yticks(rows, [result["case"] for result in compared])
    axes.set_xscale("log")
    axes.set_xlabel("microseconds a call")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    main()
