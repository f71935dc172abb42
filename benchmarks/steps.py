"""Milliseconds of a replicated training step, versus MirroredStrategy, JAX and one device.

The programs of step_programs.py run on n virtual cores (`ours`), under MirroredStrategy on n
logical CPUs (`mirrored`), in JAX with `shard_map` over n virtual CPU devices (`jax`), and as a
tf.function on one device without and with `jit_compile=True` (`plain`, `jit_compile`; the faster is
the peer `one device`), all with the same global batch. Each has its own process, and they take
turns.

    pip install '.[cpu,bench]'
    python benchmarks/steps.py [--programs mlp ...] [--replicas 1 2 8 32] [--peers ours jax ...]
                               [--rounds 9] [--json FILE] [--plot FILE]

All start with the same weights and data, and none is timed before its first losses agree with the
others'. The data is on the devices; a block of steps ends when the loss of its last step has been
read. Prints medians and spreads (the range of the middle half) of a step's milliseconds, the ratios
of ours to each peer, the seconds of the first step, which traces and compiles, the memory of the
process (its peak; the part that came after the libraries and devices were loaded; the same for the
peak after the first steps), how far a step is from the machine's limits, and which targets are met.
`--smoke` is a short run with tiny sizes that only shows that everything works.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import machine
import step_report
from step_programs import programs
from step_worker import PEERS

ONE_DEVICE = ("plain", "jit_compile")
START_LIMIT_SECONDS = 180.0
REQUEST_LIMIT_SECONDS = 600.0
CHECKED_STEPS = 5
LOSS_TOLERANCE = 1e-3


class Named(Protocol):
    """What is timed; the workers know it by its name."""

    @property
    def name(self) -> str: ...


class WorkerError(Exception):
    """A worker has failed or does not answer; the message says why."""


class Worker:
    """A process of step_worker.py, or of another program that answers requests as it does."""

    def __init__(self, peer: str, *arguments: str, program: str = "step_worker.py") -> None:
        self.peer = peer
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)
        self._received = b""
        path = str(pathlib.Path(__file__).with_name(program))
        self._process = subprocess.Popen(
            [sys.executable, path, "--peer", peer, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            # First steps compile, whatever ran before.
            env={**os.environ, "TF_TPU_EXT_COMPILATION_CACHE": ""},
        )

    def ask(self, do: str, **details: Any) -> dict[str, Any]:
        """Sends a request and waits for its answer.

        Raises:
            WorkerError: The worker answers with an error, has ended, or takes too long.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **details}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise WorkerError(self._ending(do)) from None
        return self.answer(REQUEST_LIMIT_SECONDS, do)

    def answer(self, limit: float, do: str) -> dict[str, Any]:
        """Waits for an answer; see `ask`."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + limit
        while b"\n" not in self._received:
            left = max(deadline - time.monotonic(), 0.0)
            if not select.select([self._process.stdout], [], [], left)[0]:
                raise WorkerError(f"no answer to '{do}' in {limit:g} s")
            some = os.read(self._process.stdout.fileno(), 1 << 16)
            if not some:
                raise WorkerError(self._ending(do))
            self._received += some
        line, _, self._received = self._received.partition(b"\n")
        content: dict[str, Any] = json.loads(line)
        if "error" in content:
            raise WorkerError(f"'{do}' failed: {content['error']}")
        return content

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        self._errors.close()

    def _ending(self, do: str) -> str:
        code = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        causes = [line for line in lines if "rror" in line or line.startswith("F")] or lines
        return f"ended in '{do}' with code {code}: {causes[-1][:300] if causes else 'no output'}"


class Entrant:
    """A peer in the rounds of one program with one number of replicas, and what it measured."""

    def __init__(self, worker: Worker, program: str, replicas: int) -> None:
        self.worker = worker
        self.result: dict[str, Any] = {
            "program": program,
            "replicas": replicas,
            "peer": worker.peer,
        }
        self.milliseconds: list[float] = []
        self._steps = 0

    @property
    def failed(self) -> bool:
        return "error" in self.result

    def begin(self, program: Named) -> None:
        self.worker.ask("open", program=program.name)
        first = self.worker.ask("first")
        more = self.worker.ask("steps", count=CHECKED_STEPS - 1)
        self.result["first_step_seconds"] = first["seconds"]
        self.result["losses"] = first["losses"] + more["losses"]

    def settle(self, seconds: float) -> None:
        self._steps = self.worker.ask("settle", seconds=seconds)["steps"]
        self.result["steps_per_block"] = self._steps

    def block(self) -> None:
        taken = self.worker.ask("block", steps=self._steps)["seconds"]
        self.milliseconds.append(taken / self._steps * 1e3)

    def finish(self) -> None:
        times = sorted(self.milliseconds)
        low, high = times[len(times) // 4], times[len(times) * 3 // 4]
        self.result |= {"ms": statistics.median(times), "low_ms": low, "high_ms": high}
        self.result |= self.worker.ask("memory")

    def again(self, replicas: int) -> Entrant:
        """The same model for the rounds of another number of replicas (of the others)."""
        entrant = Entrant(self.worker, self.result["program"], replicas)
        for name in ("first_step_seconds", "losses", "steps_per_block", "error"):
            if name in self.result:
                entrant.result[name] = self.result[name]
        entrant._steps = self._steps
        return entrant


def attempt(entrants: Sequence[Any], do: str, *arguments: Any) -> None:
    """Calls a method of every entrant that has not failed, one after another."""
    for entrant in entrants:
        if not entrant.failed:
            try:
                getattr(entrant, do)(*arguments)
            except WorkerError as error:
                entrant.result["error"] = str(error)


def losses_agree(losses: list[float], expected: list[float]) -> bool:
    """Whether every loss is the expected one."""
    return all(
        math.isclose(loss, right, rel_tol=LOSS_TOLERANCE)
        for loss, right in zip(losses, expected, strict=True)
    )


def check_losses(
    entrants: list[Entrant], agree: Callable[[list[float], list[float]], bool] = losses_agree
) -> None:
    """Marks entrants as failed that don't compute the same as the first one that works."""
    working = [entrant for entrant in entrants if not entrant.failed]
    for entrant in working:
        losses, expected = entrant.result["losses"], working[0].result["losses"]
        if not agree(losses, expected) or losses[0] == losses[-1]:
            entrant.result["error"] = (
                f"computes something else: its losses are {losses}, those of "
                f"{working[0].worker.peer} {expected}, which must agree and change"
            )


class Pool:
    """The workers. Each serves one program, or all in a smoke run, which measures nothing."""

    def __init__(self, smoke: bool, program: str = "step_worker.py") -> None:
        self._smoke = smoke
        self._program = program
        self._workers: dict[tuple[str, int], Worker] = {}

    def entrants(self, peers: list[str], program: str, replicas: int) -> list[Entrant]:
        fresh = [peer for peer in peers if (peer, replicas) not in self._workers]
        for peer in fresh:
            smoke = ["--smoke"] if self._smoke else []
            options = ["--replicas", str(replicas), *smoke]
            self._workers[peer, replicas] = Worker(peer, *options, program=self._program)
        entrants = [Entrant(self._workers[peer, replicas], program, replicas) for peer in peers]
        for entrant in entrants:
            if entrant.worker.peer in fresh:
                try:
                    entrant.worker.answer(START_LIMIT_SECONDS, "start")
                except WorkerError as error:
                    entrant.result["error"] = str(error)
        return entrants

    def give_back(self, entrants: list[Entrant]) -> None:
        for key, worker in list(self._workers.items()):
            for entrant in entrants:
                if entrant.worker is worker and (entrant.failed or not self._smoke):
                    self._workers.pop(key).close()
                    break

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()


def prepare(entrants: list[Entrant], program: Named, block_seconds: float) -> None:
    attempt(entrants, "begin", program)
    attempt(entrants, "settle", block_seconds)


def measure(
    pool: Pool,
    program: Named,
    arguments: argparse.Namespace,
    block_seconds: float,
    agree: Callable[[list[float], list[float]], bool] = losses_agree,
) -> list[dict[str, Any]]:
    """Times one program with each number of replicas; returns a result for each peer."""
    singles = pool.entrants([p for p in arguments.peers if p in ONE_DEVICE], program.name, 1)
    prepare(singles, program, block_seconds)
    results = []
    for replicas in arguments.replicas:
        many = [peer for peer in arguments.peers if peer not in ONE_DEVICE]
        entrants = pool.entrants(many, program.name, replicas)
        prepare(entrants, program, block_seconds)
        everyone = [single.again(replicas) for single in singles] + entrants
        check_losses(everyone, agree)
        for turn in range(arguments.rounds):
            # The order changes, because one peer may leave the caches in a state that favors the
            # next.
            attempt(everyone[:: -1 if turn % 2 else 1], "block")
        attempt(everyone, "finish")
        pool.give_back(entrants)
        results += [entrant.result for entrant in everyone]
        step_report.show_group(results[-len(everyone) :])
    pool.give_back(singles)
    return results


def parse() -> argparse.Namespace:
    names = list(programs(smoke=True))
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--programs", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--replicas", nargs="+", type=int, metavar="N")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS), metavar="PEER")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--plot", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.replicas = arguments.replicas or ([2] if arguments.smoke else [1, 2, 8, 32])
    arguments.rounds = arguments.rounds or (2 if arguments.smoke else 9)
    if min(*arguments.replicas, arguments.rounds, 1) < 1:
        parser.error("--replicas and --rounds must be positive")
    for name in arguments.programs:
        batch = programs(arguments.smoke)[name].batch
        if wrong := [n for n in arguments.replicas if batch % n]:
            parser.error(f"--replicas: the batch of {name}, {batch}, can't be split by {wrong}")
    return arguments


def main() -> None:
    arguments = parse()
    every = programs(arguments.smoke)
    block_seconds = 0.01 if arguments.smoke else 0.2
    bounds = machine.measure(0.01 if arguments.smoke else 0.5, arguments.smoke)
    machine.show(bounds)
    pool = Pool(arguments.smoke)
    results: list[dict[str, Any]] = []
    try:
        for name in arguments.programs:
            results += measure(pool, every[name], arguments, block_seconds)
    finally:
        pool.close()
        report = step_report.report(results, bounds, every, arguments)
        step_report.show(report)
        if arguments.json:
            arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    if arguments.plot:
        step_report.plot(report, arguments.plot)


if __name__ == "__main__":
    main()
