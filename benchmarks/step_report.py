"""How steps.py reports its results: ratios, bounds, targets, a table and a plot."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import math
import os
import pathlib
from collections.abc import Iterable
from typing import Any

from step_programs import Program

Results = dict[tuple[str, int, str], dict[str, Any]]

# What may be compared, and how it is written.
MEASURES = {
    "ms": "time",
    "first_step_seconds": "first step",
    "peak_mb": "peak memory",
    "added_mb": "memory of the model",
    "growth": "time, n=32 to n=8",
    "dispatch": "us a core",
}


@dataclasses.dataclass(frozen=True)
class Target:
    """What ours must achieve.

    Attributes:
        program: The program.
        replicas: The number of replicas.
        measure: One of `MEASURES`.
        peer: The peer whose ratio counts; if empty, the value itself counts.
        limit: The largest value allowed.
    """

    program: str
    replicas: int
    measure: str
    peer: str
    limit: float


ALL = ("empty", "mlp", "convnet", "lstm", "transformer", "embedding")
TARGETS = (
    Target("empty", 8, "ms", "jax", 1.0),
    Target("empty", 2, "ms", "mirrored", 0.5),
    Target("empty", 8, "ms", "mirrored", 0.5),
    Target("mlp", 2, "ms", "jax", 1.0),
    Target("mlp", 2, "ms", "mirrored", 0.75),
    Target("mlp", 8, "ms", "jax", 0.5),
    Target("convnet", 2, "ms", "mirrored", 1.0),
    Target("convnet", 8, "ms", "mirrored", 1.0),
    *(
        Target(program, replicas, "ms", peer, 1.0)
        for program in ("lstm", "transformer", "embedding")
        for replicas in (2, 8)
        for peer in ("mirrored", "jax")
    ),
    # The batch is split further, so what grows is the work per replica, of which there are four
    # times as many.
    *(Target(program, 32, "growth", "", 4.0) for program in ALL),
    Target("empty", 32, "dispatch", "", 50.0),
    *(Target(program, 8, "peak_mb", "mirrored", 1.0) for program in ALL),
    *(Target(program, 8, "added_mb", "mirrored", 1.0) for program in ALL),
    *(Target(program, 1, "first_step_seconds", "jit_compile", 1.5) for program in ALL),
)


def _index(results: list[dict[str, Any]]) -> Results:
    """The measured results, and `one device`: the faster of its two variants."""
    found = {
        (result["program"], result["replicas"], result["peer"]): result
        for result in results
        if "ms" in result
    }
    for (program, replicas, peer), result in list(found.items()):
        if peer in ("plain", "jit_compile"):
            key = (program, replicas, "one device")
            if key not in found or result["ms"] < found[key]["ms"]:
                found[key] = result
    return found


def _value(found: Results, target: Target) -> float | None:
    """The value that the target limits, or None if it was not measured."""
    try:
        ours = found[target.program, target.replicas, "ours"]
        if target.measure == "growth":
            return float(ours["ms"] / found[target.program, 8, "ours"]["ms"])
        if target.measure == "dispatch":
            return float(ours["ms"] * 1e3 / target.replicas)
        theirs = found[target.program, target.replicas, target.peer]
        return float(ours[target.measure] / theirs[target.measure])
    except (KeyError, ZeroDivisionError):
        return None


def ratios(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The ratio of our time to each peer's."""
    found = _index(results)
    return [
        {
            "program": program,
            "replicas": replicas,
            "peer": peer,
            "ratio": found[program, replicas, "ours"]["ms"] / result["ms"],
        }
        for (program, replicas, peer), result in found.items()
        if peer != "ours" and (program, replicas, "ours") in found
    ]


def check_targets(results: list[dict[str, Any]], targets: Iterable[Target]) -> list[dict[str, Any]]:
    """Adds to each measured target its value, and whether it is met."""
    found = _index(results)
    checked = []
    for target in targets:
        value = _value(found, target)
        if value is not None:
            # `ahead` and `at most` do not differ measurably.
            checked.append(dataclasses.asdict(target) | {"value": value})
            checked[-1]["met"] = value <= target.limit
    return checked


def report(
    results: list[dict[str, Any]],
    bounds: dict[str, Any],
    every: dict[str, Program],
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    """Assembles the content of the JSON file."""
    work = {}
    for name in arguments.programs:
        program = every[name]
        flops, least = program.flops, program.least_bytes()
        seconds = max(flops / bounds["gigaflops"], least / bounds["gigabytes"]) / 1e9
        work[name] = {
            "batch": program.batch,
            "flops": flops,
            "least_bytes": least,
            "bound_ms": seconds * 1e3,
        }
    for result in results:
        if "ms" in result:
            result["of_bound"] = result["ms"] / work[result["program"]]["bound_ms"]
    return {
        "made": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "load": os.getloadavg()[0],
        "smoke": arguments.smoke,
        "rounds": arguments.rounds,
        "machine": bounds,
        "work": work,
        "results": results,
        "ratios": ratios(results),
        "targets": check_targets(results, TARGETS),
    }


def show_group(group: list[dict[str, Any]]) -> None:
    """Prints the results of one program with one number of replicas."""
    found = _index(group)
    program, replicas = group[0]["program"], group[0]["replicas"]
    ours = found.get((program, replicas, "ours"))
    titles = ("ms", "spread", "ours/peer", "first s", "peak MB", "model MB", "after MB")
    title = f"{program}, n={replicas}"
    print(f"\n{title:20} " + " ".join(f"{title:>9}" for title in titles))
    for result in group:
        if "error" in result:
            print(f"{result['peer']:20} missing: {result['error']}")
            continue
        ratio = ours["ms"] / result["ms"] if ours else math.nan
        print(
            f"{result['peer']:20} {result['ms']:9.3f} {result['high_ms'] - result['low_ms']:9.3f}"
            f" {ratio:9.2f} {result['first_step_seconds']:9.2f} {result['peak_mb']:9.0f}"
            f" {result['added_mb']:9.0f} {result['running_mb']:9.0f}",
            flush=True,
        )


def show(content: dict[str, Any]) -> None:
    """Prints the bounds and the targets."""
    print(f"\n{'bounds':20} {'MFLOP':>9} {'MB':>9} {'least ms':>9}   times of it that ours takes")
    for name, work in content["work"].items():
        of_bound = ", ".join(
            f"n={result['replicas']}: {result['of_bound']:.3g}"
            for result in content["results"]
            if result["program"] == name and result["peer"] == "ours" and "of_bound" in result
        )
        print(
            f"{name:20} {work['flops'] / 1e6:9.2f} {work['least_bytes'] / 1e6:9.2f} "
            f"{work['bound_ms']:9.5f}   {of_bound}"
        )
    show_targets(content["targets"], content["smoke"])


def show_targets(targets: list[dict[str, Any]], smoke: bool) -> None:
    """Prints which targets are met."""
    note = "; sizes of a smoke run measure nothing" if smoke else ""
    print(f"\n{'targets':44} {'value':>9} {'limit':>9}{note}")
    for target in targets:
        against = f" to {target['peer']}" if target["peer"] else ""
        what = f"{MEASURES[target['measure']]}{against}"
        line = f"{target['program']}, n={target['replicas']}: {what}"
        met = "met" if target["met"] else "not met"
        print(f"{line:44} {target['value']:9.3f} {target['limit']:9.2f}  {met}")


def plot(content: dict[str, Any], path: pathlib.Path) -> None:
    """Draws a plot for each program: milliseconds over the number of replicas."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    found = _index(content["results"])
    names = list(content["work"])
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    figure, grid = pyplot.subplots(
        rows, columns, figsize=(4 * columns, 3.2 * rows + 0.4), squeeze=False
    )
    peers = {"ours": "tf_tpu_ext", "mirrored": "MirroredStrategy", "jax": "JAX"}
    peers["one device"] = "one device"
    for axes in grid.flat[len(names) :]:
        axes.set_axis_off()
    for name, axes in zip(names, grid.flat, strict=False):
        for peer, label in peers.items():
            points = sorted(
                (replicas, result)
                for (program, replicas, who), result in found.items()
                if program == name and who == peer
            )
            if not points:
                continue
            middle = [result["ms"] for _, result in points]
            below = [result["ms"] - result["low_ms"] for _, result in points]
            above = [result["high_ms"] - result["ms"] for _, result in points]
            axes.errorbar(
                [replicas for replicas, _ in points],
                middle,
                yerr=(below, above),
                label=label,
                marker="o",
                markersize=4,
                capsize=2,
                linestyle="--" if peer == "one device" else "-",
            )
        replicas = sorted({n for program, n, _ in found if program == name})
        axes.set_title(name)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(replicas, [str(n) for n in replicas])
        axes.set_xlabel("replicas")
        axes.set_ylabel("milliseconds a step")
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
        axes.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
        axes.yaxis.set_minor_formatter(ticker.NullFormatter())
        axes.grid(alpha=0.3, which="both")
    handles, labels = grid.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(labels), frameon=False)
    figure.tight_layout(rect=(0, 0.4 / (3.2 * rows + 0.4), 1, 1))
    figure.savefig(path, dpi=120)
