"""The timeline of the first launches: bars in milliseconds, lane by lane."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tf_tpu_ext._compilations import Compilation

# A page of thousands of lanes shows nothing.
MOST_CORES = 32
COMPILER = "compiler"

Bar = dict[str, Any]


def timeline(
    programs: Sequence[Compilation],
    launches: Sequence[Mapping[str, Any]],
    meetings: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Returns bars and steps.

    Args:
        programs: The compilations.
        launches: The first launches, as the library tells them; those that run are left out.
        meetings: The first collectives, as the library tells them.
    """
    by_id = {program.program_id: program for program in programs}
    ended = [launch for launch in launches if launch["end"] is not None]
    starts = [program.started for program in programs if program.started]
    origin = min([*starts, *(launch["begin"] for launch in ended)], default=0.0)
    waits: dict[int, list[Mapping[str, Any]]] = {}
    for meeting in meetings:
        waits.setdefault(meeting["run_id"], []).append(meeting)

    def milliseconds(time: float) -> float:
        return round(1e3 * (time - origin), 4)

    bars = [
        _bar(
            COMPILER,
            "compile",
            milliseconds(program.started),
            milliseconds(program.started + program.seconds),
            f"{program.function}, program {program.program_id}",
        )
        for program in programs
        if program.started
    ]
    steps = []
    for number, launch in enumerate(ended, 1):
        program = by_id.get(launch["program_id"])
        name = program.function if program else f"program {launch['program_id']}"
        begin, end = milliseconds(launch["begin"]), milliseconds(launch["end"])
        steps.append({"number": number, "name": name, "x1": begin, "x2": end})
        label = f"{name}, step {number}"
        bars += [
            _bar(f"core {core}", kind, milliseconds(x1), milliseconds(x2), f"{label}{more}")
            for core, kind, x1, x2, more in _of_launch(launch, waits.get(launch["run_id"], ()))
            if core < MOST_CORES
        ]
    lanes = [COMPILER, *sorted({bar["lane"] for bar in bars} - {COMPILER}, key=_core_of)]
    return {"bars": bars, "steps": steps, "lanes": lanes if bars else []}


def _core_of(lane: str) -> int:
    return int(lane.split()[1])


def _bar(lane: str, kind: str, begin: float, end: float, label: str) -> Bar:
    return {"lane": lane, "kind": kind, "x1": begin, "x2": end, "label": label}


def _of_launch(
    launch: Mapping[str, Any], meetings: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[int, str, float, float, str]]:
    """Yields core, kind, begin, end and a remark."""
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
