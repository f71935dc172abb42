"""Runs numbered trials in processes that may die of one, and goes on with the next trial.

A trial depends on the seed and its number alone, so one that failed can be repeated by itself.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import pathlib
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, Protocol

# A trial may compile a program; a wait in it ends after WAIT_LIMIT_SECONDS.
TRIAL_LIMIT_SECONDS = 120.0
START_LIMIT_SECONDS = 180.0
WAIT_LIMIT_SECONDS = 2.0
# How often a process shows that its cores still work.
HEALTH_CHECK_TRIALS = 50
# TensorFlow keeps what it has traced and registered.
TRIALS_OF_A_PROCESS = 2000

# A process that takes this share of a processor computes; one that waits takes next to nothing.
COMPUTING_SHARE = 0.5

END_OF_STDERR = 3000


class Trials(Protocol):
    """What a worker runs."""

    def describe(self, number: int) -> str:
        """What trial `number` does, in one line."""

    def run(self, number: int) -> str:
        """Does it; returns "ok" or the class of the error."""

    def check_health(self) -> None:
        """Raises an error if the cores do not compute any more."""


@dataclasses.dataclass(frozen=True)
class Failure:
    """A trial that its process did not survive, or after which the cores were not usable."""

    number: int
    description: str
    reason: str


class _Worker:
    """A process that runs the trials from `first` to before `end`."""

    def __init__(self, kind: str, only: str, seed: int, first: int, end: int) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)
        self._received = b""
        environment = {**os.environ, "TF_TPU_EXT_CORES": "2", "TF_CPP_MIN_LOG_LEVEL": "2"}
        # Each program once, and of no use to anybody.
        environment["TF_TPU_EXT_COMPILATION_CACHE"] = ""
        folder = str(pathlib.Path(__file__).resolve().parent.parent)
        environment["PYTHONPATH"] = os.pathsep.join(
            part for part in (folder, os.environ.get("PYTHONPATH", "")) if part
        )
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fuzzing.worker", kind, only, str(seed), str(first), str(end)],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
        )

    def next_message(self, limit_seconds: float) -> dict[str, Any] | None:
        """The next message; None if the process has ended. TimeoutError if it does not come."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + limit_seconds
        while b"\n" not in self._received:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise TimeoutError(f"no end after {limit_seconds:.0f} s")
            part = os.read(self._process.stdout.fileno(), 1 << 16)
            if not part:
                return None
            self._received += part
        line, self._received = self._received.split(b"\n", 1)
        message: dict[str, Any] = json.loads(line)
        return message

    def computes(self) -> bool:
        """Whether the process computes, and does not wait."""
        seconds = 2.0
        before = self._processor_seconds()
        time.sleep(seconds)
        return self._processor_seconds() - before > COMPUTING_SHARE * seconds

    def _processor_seconds(self) -> float:
        fields = pathlib.Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2]
        user, system = fields.split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def close(self) -> tuple[int, str]:
        """Ends the process; returns its exit code and the end of what it printed."""
        assert self._process.stdout is not None
        self._process.stdout.close()
        try:
            code = self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._errors.seek(0)
        printed = self._errors.read().decode(errors="replace")
        self._errors.close()
        # faulthandler ends with a list of all extension modules.
        printed = printed.partition("\nExtension modules: ")[0]
        return code, printed[-END_OF_STDERR:]


def run(
    kind: str, only: str, first: int, end: int, seed: int, report: Callable[[str], None]
) -> tuple[list[Failure], collections.Counter[str]]:
    """Runs the trials of a kind, "ops" or "graphs".

    Args:
        kind: What is tried.
        only: A regular expression that the names of the tried ops or graphs match; "" for all.
        first: The number of the first trial.
        end: The number after the last one.
        seed: With the number, what a trial is made of.
        report: Gets a line now and then.

    Returns:
        The failures, and how many trials ended in which way.
    """
    failures: list[Failure] = []
    outcomes: collections.Counter[str] = collections.Counter()
    while first < end:
        worker = _Worker(kind, only, seed, first, min(end, first + TRIALS_OF_A_PROCESS))
        number, description, reason = first, "start of the process", ""
        limit, loops = START_LIMIT_SECONDS, False
        try:
            while (message := worker.next_message(limit)) is not None:
                limit = TRIAL_LIMIT_SECONDS
                if "begin" in message:
                    number, description = message["begin"], message["description"]
                elif "end" in message:
                    outcomes[message["outcome"]] += 1
                    first = message["end"] + 1
                    if first % 500 == 0:
                        report(f"{first} trials, {len(failures)} failures")
                elif "unusable" in message:
                    reason = f"the cores are not usable any more: {message['unusable']}"
        except TimeoutError as error:
            reason = str(error)
            # Nothing can cancel a damaged loop of a compiled program, here as on a TPU.
            loops = worker.computes()
        code, printed = worker.close()
        if loops:
            outcomes["endless loop"] += 1
            report(f"trial {number} computes without end: {description}")
            first = max(first, number + 1)
        elif reason or code != 0:
            failures.append(
                Failure(number, description, f"{reason or f'exit code {code}'}\n{printed}")
            )
            outcomes["failure"] += 1
            report(f"trial {number}: {description}\n  {failures[-1].reason}")
            first = max(first, number + 1)
    return failures, outcomes
