"""Milliseconds of a training step on several processes, versus MultiWorkerMirrored and JAX.

The same step, with the same global batch, runs on n processes: as a program on n workers with one
core each (`ours`), under MultiWorkerMirroredStrategy with gRPC rings (`multi_worker`), and in JAX
with `shard_map` and Gloo's collectives (`jax`). In the row `empty`, `remote` is a function that
TensorFlow runs on the CPUs of such workers: what its runtime takes to start a step from outside and
to fetch a value. All processes stay alive, and the peers take turns.

    pip install '.[cpu,bench]'
    python benchmarks/pods.py [--rows mlp ...] [--processes 2 4] [--peers ours jax ...]
                              [--rounds 9] [--json FILE]

The rows are: `empty`, a step that only returns a number from each replica; `all_reduce`, a sum of 4
KB over the replicas; `mlp` and `transformer` from step_programs.py; and `gradients`, a sum of 100
MB that then updates the variables. A step ends when a value of its result has been read in all
processes. Nothing is timed before the values of the first steps agree. Prints medians and spreads
(the range of the middle half) of a step's milliseconds, and the ratios of ours to each peer; the
exit code is 1 if a peer fails or computes different values. `--smoke` is a short run with tiny
sizes that only shows that everything works.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import datetime
import importlib.util
import json
import math
import os
import pathlib
import socket
import statistics
import sys
from typing import Any

import pod_member
import steps
from step_programs import programs

CHECKED_STEPS = 5
TOLERANCE = 1e-4
MOST_STEPS = 100


class Team:
    """The processes of one peer.

    Attributes:
        peer: The peer.
        processes: The number of processes, with one replica each.
        missing: Why there are none on this machine; empty if there are any.
    """

    def __init__(self, peer: str, processes: int, smoke: bool) -> None:
        self.peer = peer
        self.processes = processes
        absent = peer == "jax" and not importlib.util.find_spec("jax")
        self.missing = "JAX is not installed: pip install '.[bench]'" if absent else ""
        self._error = ""
        self._members: list[steps.Worker] = []
        # The workers' client starts them.
        ranks = range(0 if absent else 1 if peer in pod_member.CLIENTS else processes)
        shared = ["--ports", *map(str, free_ports(processes)), *(["--smoke"] if smoke else [])]
        try:
            for rank in ranks:
                self._members.append(
                    steps.Worker(peer, "--rank", str(rank), *shared, program="pod_member.py")
                )
        except BaseException:
            self.close()
            raise

    def wait_for_start(self) -> None:
        """Waits until all are ready. If one fails, `steps` says so."""
        if not self.missing:
            with contextlib.suppress(steps.WorkerError):
                self._all("answer", steps.START_LIMIT_SECONDS, "start")

    def steps(self, row: str, count: int) -> tuple[list[float], list[float]]:
        """Runs steps in all processes.

        Returns:
            Milliseconds and value of each step: those of the slowest process, and the mean.

        Raises:
            steps.WorkerError: One has failed, has ended, or has taken too long, now or earlier.
        """
        answers = self._all("ask", row, count=count)
        slowest = [max(each) for each in zip(*(one["ms"] for one in answers), strict=True)]
        values = zip(*(one["values"] for one in answers), strict=True)
        return slowest, [statistics.fmean(each) for each in values]

    def close(self) -> None:
        for member in self._members:
            member.close()

    def _all(self, method: str, *arguments: Any, **details: Any) -> list[dict[str, Any]]:
        """Calls a method of all members at the same time."""
        if self._error:
            raise steps.WorkerError(self._error)
        with concurrent.futures.ThreadPoolExecutor(len(self._members)) as pool:
            calls = [
                pool.submit(getattr(member, method), *arguments, **details)
                for member in self._members
            ]
            for call in concurrent.futures.as_completed(calls):
                if error := call.exception():
                    self._error = str(error)
                    # The others may wait for the one that has failed.
                    for member in self._members:
                        member.kill()
                    raise error
        return [call.result() for call in calls]


class Entrant:
    """A peer in the rounds of one row, and what it measured."""

    def __init__(self, team: Team, row: str) -> None:
        self.team = team
        self.result: dict[str, Any] = {
            "row": row,
            "processes": team.processes,
            "peer": team.peer,
        }
        if team.missing:
            self.result["missing"] = team.missing
        elif team.peer == "remote" and row != "empty":
            self.result["missing"] = "it only starts functions"
        self._milliseconds: list[float] = []
        self._steps = 1

    @property
    def failed(self) -> bool:
        return "error" in self.result or "missing" in self.result

    def begin(self, block_seconds: float) -> None:
        """Runs the first steps, and decides how many steps a block of the given duration has."""
        taken, self.result["values"] = self.team.steps(self.result["row"], CHECKED_STEPS)
        self._steps = min(max(round(block_seconds * 1e3 / min(taken)), 1), MOST_STEPS)

    def block(self) -> None:
        # In the first step, some processes wait for others that received the request later.
        self._milliseconds += self.team.steps(self.result["row"], self._steps + 1)[0][1:]

    def finish(self) -> None:
        times = sorted(self._milliseconds)
        self.result |= {
            "ms": statistics.median(times),
            "low_ms": times[len(times) // 4],
            "high_ms": times[len(times) * 3 // 4],
            "steps": len(times),
        }


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in listeners:
            listener.bind(("localhost", 0))
        return [listener.getsockname()[1] for listener in listeners]


def check_values(entrants: list[Entrant]) -> None:
    """Marks entrants as failed that don't compute the same as the first one that works."""
    working = [entrant for entrant in entrants if not entrant.failed]
    for entrant in working:
        values, expected = entrant.result["values"], working[0].result["values"]
        pairs = zip(values, expected, strict=True)
        if not all(math.isclose(*pair, rel_tol=TOLERANCE) for pair in pairs):
            entrant.result["error"] = (
                f"computes something else: its values are {values}, those of "
                f"{working[0].team.peer} {expected}"
            )


def measure_row(teams: list[Team], row: str, arguments: argparse.Namespace) -> list[Entrant]:
    """Times one row with the processes of all peers."""
    entrants = [Entrant(team, row) for team in teams]
    steps.attempt(entrants, "begin", 0.01 if arguments.smoke else 0.3)
    check_values(entrants)
    for turn in range(arguments.rounds):
        # The order changes, because one peer may leave the caches in a state that favors the next.
        steps.attempt(entrants[:: -1 if turn % 2 else 1], "block")
    steps.attempt(entrants, "finish")
    return entrants


def measure(processes: int, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Times every row with one number of processes, and prints it."""
    results = []
    with contextlib.ExitStack() as stack:
        teams = []
        for peer in arguments.peers:
            teams.append(Team(peer, processes, arguments.smoke))
            stack.callback(teams[-1].close)
        for team in teams:
            team.wait_for_start()
        for row in arguments.rows:
            group = [entrant.result for entrant in measure_row(teams, row, arguments)]
            add_ratios(group)
            show(group)
            results += group
    return results


def add_ratios(group: list[dict[str, Any]]) -> None:
    """Adds the ratio of our time to each peer's."""
    ours = next((one["ms"] for one in group if one["peer"] == "ours" and "ms" in one), None)
    for result in group:
        if ours is not None and "ms" in result:
            result["ratio"] = ours / result["ms"]


def show(group: list[dict[str, Any]]) -> None:
    """Prints the results of one row with one number of processes."""
    title = f"{group[0]['row']}, n={group[0]['processes']}"
    print(f"\n{title:20} {'ms':>9} {'spread':>9} {'ours/peer':>9}")
    for result in group:
        if "ms" not in result:
            print(f"{result['peer']:20} missing: {result.get('missing') or result['error']}")
            continue
        spread, ratio = result["high_ms"] - result["low_ms"], result.get("ratio", math.nan)
        print(f"{result['peer']:20} {result['ms']:9.3f} {spread:9.3f} {ratio:9.2f}", flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    rows, peers = pod_member.ROWS, pod_member.PEERS
    parser.add_argument("--rows", nargs="+", choices=rows, default=list(rows), metavar="ROW")
    parser.add_argument("--processes", nargs="+", type=int, metavar="N")
    parser.add_argument("--peers", nargs="+", choices=peers, default=list(peers), metavar="PEER")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.processes = arguments.processes or ([2] if arguments.smoke else [2, 4])
    arguments.rounds = arguments.rounds or (2 if arguments.smoke else 9)
    if min(*arguments.processes, arguments.rounds, 1) < 1:
        parser.error("--processes and --rounds must be positive")
    every = programs(arguments.smoke)
    for name in set(pod_member.PROGRAMS) & set(arguments.rows):
        if wrong := [n for n in arguments.processes if every[name].batch % n]:
            parser.error(
                f"--processes: the batch of {name}, {every[name].batch}, can't be split by {wrong}"
            )
    return arguments


def main() -> int:
    arguments = parse()
    results: list[dict[str, Any]] = []
    for processes in arguments.processes:
        results += measure(processes, arguments)
    if arguments.json:
        report = {
            "made": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "load": os.getloadavg()[0],
            "smoke": arguments.smoke,
            "rounds": arguments.rounds,
            "results": results,
        }
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    return int(any("error" in result for result in results))


if __name__ == "__main__":
    sys.exit(main())
