"""Random programs, ops and graphs on the virtual cores.

    tools/fuzz programs --examples 5000 --cores 2   # with clusters, against plain TensorFlow
    tools/fuzz ops --trials 100000                  # one op with arbitrary arguments
    tools/fuzz graphs --trials 10000                # real TPU graphs, damaged

The last two exit with code 1 if a trial crashes its process, hangs, or leaves cores that no longer
compute; an error is the expected outcome. `--seed S --trial N` repeats one trial.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

# Python puts this folder first, unless PYTHONSAFEPATH is set.
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fuzzing import trials


def add_trials_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], kind: str
) -> None:
    parser = commands.add_parser(kind)
    parser.add_argument("--trials", type=int, default=2000, help="number of trials")
    parser.add_argument("--seed", type=int, help="repeat a run; else every run differs")
    parser.add_argument(
        "--only", default="", metavar="REGEX", help=f"only {kind} whose name matches"
    )
    parser.add_argument("--trial", type=int, help="run only the trial of this number")


def run_trials(arguments: argparse.Namespace) -> int:
    seed = time.time_ns() % (1 << 32) if arguments.seed is None else arguments.seed
    first, end = 0, arguments.trials
    if arguments.trial is not None:
        first, end = arguments.trial, arguments.trial + 1
    print(f"seed {seed}, {end - first} trials", flush=True)
    start = time.monotonic()
    failures, outcomes = trials.run(
        arguments.command,
        arguments.only,
        first,
        end,
        seed,
        lambda line: print(line, flush=True),
    )
    for outcome, count in outcomes.most_common():
        print(f"{count:8} {outcome}")
    print(f"{len(failures)} failures in {time.monotonic() - start:.0f} s")
    return 1 if failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    programs = commands.add_parser("programs")
    programs.add_argument("--examples", type=int, default=2000, help="number of programs")
    programs.add_argument("--cores", type=int, default=2, help="number of replicas")
    programs.add_argument("--seed", type=int, help="repeat a run; else every run differs")
    programs.add_argument(
        "--ordered", action="store_true", help="compare the order of host calls, too"
    )
    programs.add_argument("--kinds", nargs="+", help="kinds of clusters; all unless given")
    for kind in ("ops", "graphs"):
        add_trials_parser(commands, kind)
    arguments = parser.parse_args()
    if arguments.command != "programs":
        return run_trials(arguments)
    from fuzzing import compare_programs

    return compare_programs.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
