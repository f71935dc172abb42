"""What compilation costs: the first step compared with `jit_compile`, and time by graph size.

    python benchmarks/compile.py [--programs mlp ...] [--rounds 3] [--kinds chain wide]
                                 [--sizes 1000 3000 10000 30000 100000] [--limit 300]
                                 [--json FILE] [--plot FILE]

First it measures the seconds of the first step of each program in step_programs.py, which traces
and compiles: on one virtual core, the same in a process that finds its machine code in the
compilation cache, and as a `jit_compile=True` function, each time in a fresh process. Then it
measures the seconds of a replicated computation with a given number of nodes on two cores, and of
the same as a `jit_compile=True` function: `chain` is one chain of elementwise ops, `wide` is short
parallel chains that are summed. Prints how much of it is tracing (Python), lowering (TensorFlow's
graph to XLA's), building (XLA) and the rest of the first call (graph passes, and the step itself),
and the slope of their logarithms over that of the number of nodes, where 1 is linear. A size that
takes longer than the limit is missing, and so are larger ones. `--smoke` only shows that everything
works.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import step_programs

WAYS = ("ours", "jit_compile")
PARTS = ("trace", "rest", "lowering", "building", "total")
REPLICAS = 2
FIRST_STEP_LIMIT = 1.5
BRANCH = 8


def chain(x: Any, y: Any, nodes: int) -> Any:
    for i in range(nodes):
        x = x + y if i % 2 else x * y
    return x


def wide(x: Any, y: Any, nodes: int) -> Any:
    import tensorflow as tf

    # Each begins with its own constant and a product with it: equal ones would be merged.
    branches = range(max(nodes // (BRANCH + 2), 1))
    ends = [chain(x * (1.0 + 0.001 * i), y, BRANCH) for i in branches]
    while len(ends) > 1:
        ends = [tf.add_n(ends[i : i + 16]) for i in range(0, len(ends), 16)]
    return ends[0]


KINDS: dict[str, Callable[[Any, Any, int], Any]] = {"chain": chain, "wide": wide}


def compiler_seconds() -> dict[str, float]:
    """The time that our compiler has taken in this process."""
    import tf_tpu_ext

    compiled = tf_tpu_ext.compilation_stats().programs
    return {
        "lowering": sum(program.lowering_seconds for program in compiled),
        "building": sum(program.building_seconds for program in compiled),
    }


def first_step(way: str, program: str, smoke: bool, cache: str) -> dict[str, float]:
    import step_worker

    if cache:
        import tf_tpu_ext

        tf_tpu_ext.configure(compilation_cache=cache)
    step, read = step_worker.set_up(way, 1)(step_programs.programs(smoke)[program])
    start = time.perf_counter()
    read(step())
    seconds = {"total": time.perf_counter() - start}
    return seconds | (compiler_seconds() if way == "ours" else {})


def graph(way: str, kind: str, nodes: int) -> dict[str, float]:
    if way == "ours":
        import tf_tpu_ext

        tf_tpu_ext.configure(cores=REPLICAS)
    import tensorflow as tf

    def body(x: Any, y: Any) -> Any:
        return KINDS[kind](x, y, nodes)

    function: Any
    if way == "ours":
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
        tf.tpu.experimental.initialize_tpu_system(resolver)
        strategy = tf.distribute.TPUStrategy(resolver)

        @tf.function(autograph=False)
        def function(x: Any, y: Any) -> Any:
            return strategy.experimental_local_results(strategy.run(body, args=(x, y)))[0]

    else:
        function = tf.function(body, autograph=False, jit_compile=True)
    x, y = tf.ones([16]), tf.fill([16], 0.5)
    start = time.perf_counter()
    concrete = function.get_concrete_function(x, y)
    traced = time.perf_counter()
    concrete(x, y).numpy()
    called = time.perf_counter()
    concrete(x, y).numpy()
    seconds = {"trace": traced - start, "total": called - start}
    seconds["second_call"] = time.perf_counter() - called
    if way == "ours":
        seconds |= compiler_seconds()
        known = seconds["lowering"] + seconds["building"]
        seconds["rest"] = called - traced - known
    return seconds


def in_process(limit: float, *what: str) -> dict[str, Any]:
    """Runs one measurement in its own process; returns it, or why there is none."""
    command = [sys.executable, __file__, "--worker", *what]
    # No cache but the one that is measured.
    environment = {
        **os.environ,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_TPU_EXT_COMPILATION_CACHE": "",
    }
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=limit
        )
    except subprocess.TimeoutExpired:
        return {"error": f"longer than {limit:g} s"}
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no output"]
        return {"error": f"code {done.returncode}: {lines[-1][:300]}"}
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def measure_first_steps(
    names: list[str], rounds: int, limit: float, smoke: bool
) -> list[dict[str, Any]]:
    results = []
    titles = ("ours", "lowering", "building", "cached", "jit", "ratio")
    print(f"{'first step, s':14} " + " ".join(f"{title:>8}" for title in titles))
    for name in names:
        taken: dict[str, list[dict[str, Any]]] = {way: [] for way in (*WAYS, "cached")}
        size = "smoke" if smoke else ""
        with tempfile.TemporaryDirectory() as cache:
            in_process(limit, "first", "ours", name, size, cache)
            for _ in range(rounds):
                for way in WAYS:
                    taken[way].append(in_process(limit, "first", way, name, size, ""))
                taken["cached"].append(in_process(limit, "first", "ours", name, size, cache))
        errors = [run["error"] for runs in taken.values() for run in runs if "error" in run]
        if errors:
            results.append({"program": name, "error": errors[0]})
            print(f"{name:14} missing: {errors[0]}")
            continue
        ours, lowering, building = (
            statistics.median(run[part] for run in taken["ours"])
            for part in ("total", "lowering", "building")
        )
        jit = statistics.median(run["total"] for run in taken["jit_compile"])
        cached = statistics.median(run["total"] for run in taken["cached"])
        result = {"program": name, "ours": ours, "lowering": lowering, "building": building}
        result["cached"] = cached
        result |= {"jit_compile": jit, "ratio": ours / jit, "limit": FIRST_STEP_LIMIT}
        result["met"] = ours / jit <= FIRST_STEP_LIMIT
        results.append(result)
        met = "met" if result["met"] else "not met"
        times = (ours, lowering, building, cached, jit, ours / jit)
        print(f"{name:14} " + " ".join(f"{time:8.2f}" for time in times) + f" {met}", flush=True)
    return results


def measure_graphs(kinds: list[str], sizes: list[int], limit: float) -> list[dict[str, Any]]:
    results = []
    print(f"\n{'graph, s':24} " + " ".join(f"{part:>9}" for part in PARTS))
    for kind in kinds:
        for way in WAYS:
            for nodes in sorted(sizes):
                measured = in_process(limit, "graph", way, kind, str(nodes))
                results.append({"kind": kind, "way": way, "nodes": nodes, **measured})
                title = f"{kind} {way} {nodes}"
                if "error" in measured:
                    print(f"{title:24} missing: {measured['error']}", flush=True)
                    break
                parts = (f"{measured.get(part, math.nan):9.3f}" for part in PARTS)
                print(f"{title:24} " + " ".join(parts), flush=True)
    return results


def slopes(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Fits the growth of each part, without small sizes, which measure what every graph costs."""
    import numpy as np

    found = []
    for kind, way in sorted({(result["kind"], result["way"]) for result in results}):
        lines = [r for r in results if (r["kind"], r["way"]) == (kind, way) and "total" in r]
        lines = [r for r in lines if r["nodes"] >= 3000] or lines
        for part in PARTS:
            points = [(r["nodes"], r[part]) for r in lines if r.get(part, 0) > 0]
            if len(points) > 1:
                slope = np.polyfit(*np.log(np.array(points, float)).T, 1)[0]
                found.append({"kind": kind, "way": way, "part": part, "slope": float(slope)})
    return found


def plot(results: list[dict[str, Any]], path: pathlib.Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    kinds = list(dict.fromkeys(result["kind"] for result in results))
    figure, grid = pyplot.subplots(
        1, len(kinds), figsize=(4.5 * len(kinds), 3.8), squeeze=False, sharey=True
    )
    for kind, axes in zip(kinds, grid.flat, strict=True):
        for way, part in [*(("ours", part) for part in PARTS), ("jit_compile", "total")]:
            points = [
                (result["nodes"], result[part])
                for result in results
                if (result["kind"], result["way"]) == (kind, way) and part in result
            ]
            if points:
                label = part if way == "ours" else "jit_compile, total"
                style = "-" if part == "total" and way == "ours" else "--"
                axes.plot(*zip(*points, strict=True), style, marker="o", markersize=4, label=label)
        axes.set_title(kind)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("nodes")
        axes.set_ylabel("seconds")
        axes.grid(alpha=0.3)
    grid.flat[-1].legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def work(kind: str, *what: str) -> None:
    # Library output must not come after the answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if kind == "first":
        way, program, smoke, cache = what
        measured = first_step(way, program, bool(smoke), cache)
    else:
        way, shape, nodes = what
        measured = graph(way, shape, int(nodes))
    answers.write(json.dumps(measured) + "\n")
    answers.flush()
    os._exit(0)


def main() -> None:
    names = list(step_programs.programs(smoke=True))
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--programs", nargs="*", choices=names, default=names, metavar="NAME")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=list(KINDS), metavar="KIND")
    parser.add_argument("--sizes", nargs="+", type=int, metavar="NODES")
    parser.add_argument("--limit", type=float, default=300, help="seconds for one measurement")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--plot", type=pathlib.Path)
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(*arguments.worker)
    smoke = arguments.smoke
    sizes = arguments.sizes or ([50, 100] if smoke else [1000, 3000, 10_000, 30_000, 100_000])
    programs = arguments.programs[:1] if smoke else arguments.programs
    rounds = 1 if smoke else arguments.rounds
    first_steps = measure_first_steps(programs, rounds, arguments.limit, smoke)
    graphs = measure_graphs(arguments.kinds, sizes, arguments.limit)
    fits = slopes(graphs)
    print(f"\n{'slopes':24} " + " ".join(f"{part:>9}" for part in PARTS))
    for kind, way in dict.fromkeys((fit["kind"], fit["way"]) for fit in fits):
        own = {f["part"]: f["slope"] for f in fits if (f["kind"], f["way"]) == (kind, way)}
        print(f"{kind + ' ' + way:24} " + " ".join(f"{own.get(p, math.nan):9.2f}" for p in PARTS))
    if arguments.json:
        report = {"first_steps": first_steps, "graphs": graphs, "slopes": fits}
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    if arguments.plot and graphs:
        plot(graphs, arguments.plot)


if __name__ == "__main__":
    main()
