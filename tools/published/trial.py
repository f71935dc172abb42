"""Runs a program on virtual cores, kills and resumes it, and checks what it did."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence

import environments

from published.program import Program

_COMMAND = environments.ROOT / "tf_tpu_ext" / "cli"
_POLL_SECONDS = 0.1


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a program is laid out."""

    python: pathlib.Path
    folder: pathlib.Path
    data: pathlib.Path
    source: pathlib.Path | None
    variables: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Result:
    """What a program did, and what is wrong with that."""

    program: Program
    cores: int
    seconds: float
    losses: tuple[float, ...]
    problems: tuple[str, ...]
    log: pathlib.Path


def run(program: Program, cores: int, place: Place) -> Result:
    """Runs a program from its start to its end."""
    model = _fresh(place.folder / f"{cores}-cores")
    log, report = place.folder / f"{cores}-cores.log", place.folder / f"{cores}-cores.json"
    report.unlink(missing_ok=True)
    start = time.monotonic()
    with _started(program, cores, place, model, log, report) as process:
        code = _wait(process, program.seconds)
    seconds = time.monotonic() - start
    found = losses(program, log.read_text(errors="replace"))
    problems = _ending(code, program, log)
    if not problems:
        problems = [*_falling(program, found), *_on_cores(program, report)]
    return Result(program, cores, seconds, found, tuple(problems), log)


def resume(program: Program, cores: int, place: Place) -> Result:
    """Kills a program after its first checkpoint, and starts it again."""
    assert program.checkpoint is not None
    model, log = _fresh(place.folder / "killed"), place.folder / "killed.log"
    start = time.monotonic()
    with _started(program, cores, place, model, log) as process:
        while process.poll() is None and not _names_checkpoint(model / program.checkpoint):
            if time.monotonic() - start > program.seconds:
                break
            time.sleep(_POLL_SECONDS)
        ended = process.poll()
    if ended is not None:
        problem = f"it ended with {ended} before it could be killed, see {log}"
        return Result(program, cores, time.monotonic() - start, (), (problem,), log)
    log = place.folder / "resumed.log"
    with _started(program, cores, place, model, log) as process:
        code = _wait(process, program.seconds)
    text = log.read_text(errors="replace")
    problems = _ending(code, program, log)
    if not problems and not re.search(program.resumed, text):
        problems.append(f"it does not say that it went on from a checkpoint, see {log}")
    seconds = time.monotonic() - start
    return Result(program, cores, seconds, losses(program, text), tuple(problems), log)


def _names_checkpoint(state: pathlib.Path) -> bool:
    """Returns whether there is a checkpoint of a step after the first, complete."""
    text = state.read_text() if state.exists() else ""
    return re.search(r'^model_checkpoint_path: ".*-0*[1-9]\d*"', text, re.MULTILINE) is not None


def losses(program: Program, output: str) -> tuple[float, ...]:
    """Returns the losses that a program has printed."""
    found = [] if program.loss is None else re.findall(program.loss, output)
    return tuple(float(one) for one in found)


def different(results: Sequence[Result]) -> list[str]:
    """Returns what is wrong with the last losses of runs on several numbers of cores."""
    problems = []
    for one in results[1:]:
        first, share = results[0], one.program.alike
        if share is None or not first.losses or not one.losses:
            continue
        a, b = first.losses[-1], one.losses[-1]
        if abs(a - b) > share * max(abs(a), abs(b)):
            problems.append(f"loss {a} on {first.cores} cores, and {b} on {one.cores}")
    return problems


def _fresh(folder: pathlib.Path) -> pathlib.Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


@contextlib.contextmanager
def _started(
    program: Program,
    cores: int,
    place: Place,
    model: pathlib.Path,
    log: pathlib.Path,
    report: pathlib.Path | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a program, and kills it at the end if it still runs."""
    values = {"data": place.data, "model": model, "source": place.source, "cores": cores}
    words = [word.format(**values) for word in program.command]
    options = [] if report is None else ["--report", str(report)]
    command = [str(place.python), str(_COMMAND), "run", "--cores", str(cores), *options, *words]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=(program.in_source and place.source) or model,
            env=place.variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            # With what it has started; the group is there until its leader is waited for.
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def _ending(code: int | None, program: Program, log: pathlib.Path) -> list[str]:
    if code == 0:
        return []
    if code is None:
        return [f"it did not end in {program.seconds:.0f} s, see {log}"]
    return [f"it ended with {code}, see {log}"]


def _falling(program: Program, found: Sequence[float]) -> list[str]:
    if program.loss is None:
        return []
    if len(found) < 2:
        return [f"it printed {len(found)} losses, expected two or more"]
    if not found[-1] < program.falls * found[0]:
        return [f"its loss went from {found[0]} to {found[-1]}"]
    return []


def _on_cores(program: Program, report: pathlib.Path) -> list[str]:
    """Returns a problem if a program has not used the cores at all."""
    if not program.on_cores:
        return []
    if report.exists() and json.loads(report.read_text())["launches"] > 0:
        return []
    return ["it ran no program on the cores"]
