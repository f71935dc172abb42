"""What the workers whose cores the program uses have done."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tf_tpu_ext import _workers
from tf_tpu_ext._compilations import Compilation, compilations_of
from tf_tpu_ext._machine import Cluster, PaddedInput, padded_inputs_of
from tf_tpu_ext._page._timeline import Host


@dataclasses.dataclass(frozen=True)
class Worker:
    """A worker of the program's pod.

    Attributes:
        name: Its name on the page.
        address: Where it listens.
        error: Why it could not be asked; empty if it could.
        described: How it describes itself; see the op `TpuExt>DescribeHost`.
        programs: The programs that it has compiled.
        collectives: The collectives of its cores, as the library reports them.
        clusters: The outside compilation clusters that it has run.
        padded_inputs: The inputs that it has padded.
        host: The data for its part of the timeline.
    """

    name: str
    address: str
    error: str = ""
    described: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    programs: tuple[Compilation, ...] = ()
    collectives: Sequence[dict[str, Any]] = ()
    clusters: tuple[Cluster, ...] = ()
    padded_inputs: tuple[PaddedInput, ...] = ()
    host: Host | None = None


def workers() -> list[Worker]:
    """Asks all workers."""
    asked: list[Worker] = []
    for number, address in enumerate(_workers.known):
        first_core = sum(worker.described.get("cores", 0) for worker in asked)
        asked.append(_ask(f"worker {number}", address, first_core))
    return asked


def _ask(name: str, address: str, first_core: int) -> Worker:
    import tensorflow as tf

    try:
        asked = time.time()
        described = _workers.describe(address)
        ahead = described["seconds"] - (asked + time.time()) / 2
        work = _workers.describe_work(address)
    except tf.errors.OpError as error:
        return Worker(name, address, error=error.message)
    _number_cores(work, first_core)
    padded = padded_inputs_of(work["padded_inputs"], work["compilations"])
    programs = compilations_of(work["compilations"])
    return Worker(
        name,
        address,
        described=described,
        programs=programs,
        collectives=work["collectives"],
        clusters=tuple(Cluster(**record) for record in work["clusters"]),
        padded_inputs=padded,
        host=Host(programs, work["launches"], work["meetings"], f"{name}, ", ahead),
    )


def _number_cores(work: Mapping[str, Any], first_core: int) -> None:
    """Renumbers the cores of a worker as the pod does.

    Runs use the worker's own core numbers. Collectives of a program on several workers use the
    pod's numbers; others use the worker's, which are all below its first core's number in the pod.
    """
    for launch in work["launches"]:
        for run in launch["runs"]:
            run["cores"] = [core + first_core for core in run["cores"]]
    for each in [*work["collectives"], *work["meetings"]]:
        for core in each.get("cores") or each["arrivals"]:
            if core["core"] < first_core:
                core["core"] += first_core
