"""The timeline of the first launches: bars in milliseconds, lane by lane."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tf_tpu_ext._compilations import Compilation

# A page with thousands of lanes would be unreadable.
MOST_CORES = 32
COMPILER = "compiler"

Bar = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Host:
    """What one host has done.

    Attributes:
        programs: Its compilations.
        launches: Its first launches, as the library reports them; those still running are left out.
        meetings: Its first collectives, as the library reports them.
        name: The prefix of its lanes' names; empty for this process.
        ahead: How many seconds its clock is ahead of this process's.
    """

    programs: Sequence[Compilation]
    launches: Sequence[Mapping[str, Any]]
    meetings: Sequence[Mapping[str, Any]]
    name: str = ""
    ahead: float = 0.0

    @property
    def ended(self) -> list[Mapping[str, Any]]:
        """The launches that have ended."""
        return [launch for launch in self.launches if launch["end"] is not None]

    def start(self) -> float:
        """Returns when it began by this process's clock, or infinity if it did nothing."""
        starts = [program.started for program in self.programs if program.started]
        begins = (launch["begin"] for launch in self.ended)
        return min([*starts, *begins], default=math.inf) - self.ahead


def timeline(hosts: Sequence[Host]) -> dict[str, Any]:
    """Returns bars, lanes and steps; the steps are the first host's, since all hosts share them."""
    origin = min((host.start() for host in hosts), default=0.0)
    drawn = [_of_host(host, origin + host.ahead) for host in hosts]
    return {
        "bars": [bar for part in drawn for bar in part["bars"]],
        "lanes": [lane for part in drawn for lane in part["lanes"]],
        "steps": drawn[0]["steps"] if drawn else [],
    }


def _of_host(host: Host, origin: float) -> dict[str, Any]:
    by_id = {program.program_id: program for program in host.programs}
    waits: dict[int, list[Mapping[str, Any]]] = {}
    for meeting in host.meetings:
        waits.setdefault(meeting["run_id"], []).append(meeting)

    def milliseconds(time: float) -> float:
        return round(1e3 * (time - origin), 4)

    bars = [
        _bar(
            f"{host.name}{COMPILER}",
            "compile",
            milliseconds(program.started),
            milliseconds(program.started + program.seconds),
            f"{program.function}, program {program.program_id}",
        )
        for program in host.programs
        if program.started
    ]
    steps = []
    for number, launch in enumerate(host.ended, 1):
        program = by_id.get(launch["program_id"])
        name = program.function if program else f"program {launch['program_id']}"
        begin, end = milliseconds(launch["begin"]), milliseconds(launch["end"])
        steps.append({"number": number, "name": name, "x1": begin, "x2": end})
        label = f"{name}, step {number}"
        bars += [
            _bar(
                f"{host.name}core {core}",
                kind,
                milliseconds(x1),
                milliseconds(x2),
                f"{label}{more}",
            )
            for core, kind, x1, x2, more in _of_launch(launch, waits.get(launch["run_id"], ()))
            if core < MOST_CORES
        ]
    return {
        "bars": bars,
        "steps": steps,
        "lanes": sorted({bar["lane"] for bar in bars}, key=_place),
    }


def _place(lane: str) -> tuple[bool, int]:
    """Returns the sort key of a lane within its host; the compiler's lane comes first."""
    last = lane.split()[-1]
    return (last != COMPILER, int(last) if last != COMPILER else 0)


def _bar(lane: str, kind: str, begin: float, end: float, label: str) -> Bar:
    return {"lane": lane, "kind": kind, "x1": begin, "x2": end, "label": label}


def _of_launch(
    launch: Mapping[str, Any], meetings: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[int, str, float, float, str]]:
    """Yields the core, kind, begin, end and a remark."""
    last = launch["begin"]
    cores: list[int] = []
    for run in launch["runs"]:
        end = launch["end"] if run["end"] is None else run["end"]
        last = max(last, end)
        shared = "" if len(run["cores"]) == 1 else f", one run for {len(run['cores'])} cores"
        for core in run["cores"]:
            cores.append(core)
            yield core, "run", run["begin"], end, shared
    for meeting in meetings:
        arrivals = meeting["arrivals"]
        latest = max(arrivals, key=lambda arrival: arrival["time"])
        for arrival in arrivals:
            if arrival is not latest:
                remark = f", {meeting['name']}: waits for core {latest['core']}"
                yield arrival["core"], "wait", arrival["time"], latest["time"], remark
    for core in cores:
        yield core, "update", last, launch["end"], ", the rest of the step: update and results"
