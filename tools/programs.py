"""Runs published TPU programs on virtual cores, and checks what they do.

    tools/programs --list
    tools/programs mesh-toy-model garden-dlrm --work FOLDER --sources CLONES --cores 2 8

Without names, it runs all of them. Each is laid out in the folder --work: its packages in a virtual
environment, made-up data in the program's real format, checkpoints and logs. Repositories are not
downloaded: --sources is a folder with clones, and an error says which ones to create. A program
must exit with 0, and its loss must fall; if it is deterministic, it must reach the same loss on
other numbers of cores; and after kill -9 it must continue from its checkpoint. A table shows the
results; docs/programs.md has the latest one. The exit code is 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import signal
import sys
from collections.abc import Sequence

# Python puts this folder first, unless PYTHONSAFEPATH is set.
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from published import layout, records, trial
from published.program import Program

_HEAD = "| Program | Version | Cores | Seconds | Losses | Result |\n|---|---|---|---|---|---|"


def main() -> int:
    # Not at once: the program that runs is ended first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs, all if there are none")
    parser.add_argument("--list", action="store_true", help="print the programs, and end")
    parser.add_argument("--work", type=pathlib.Path, help="a folder, outside of the repository")
    parser.add_argument("--sources", type=pathlib.Path, help="a folder with clones")
    parser.add_argument("--cores", type=int, nargs="+", help="otherwise what a program names")
    parser.add_argument("--no-kill", action="store_true", help="don't kill and resume them")
    parser.add_argument("--prepare", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    programs = {program.name: program for program in records.PROGRAMS}
    if arguments.list:
        for program in programs.values():
            print(f"{program.name:26} {program.version()}")
        return 0
    unknown = [name for name in arguments.names if name not in programs]
    if unknown:
        parser.error(f"there is no program {', '.join(unknown)}. Programs: {', '.join(programs)}")
    if arguments.prepare is not None:
        for name in arguments.names:
            prepare = programs[name].prepare
            assert prepare is not None
            prepare(arguments.prepare)
        return 0
    if arguments.work is None:
        parser.error("expected --work FOLDER, for environments, data and logs")
    chosen = [programs[name] for name in arguments.names or programs]
    lines, good = [], True
    for program in chosen:
        found, passed = _try(program, arguments)
        lines += found
        good &= passed
    print("\n".join([_HEAD, *lines]))
    return 0 if good else 1


def _try(program: Program, arguments: argparse.Namespace) -> tuple[list[str], bool]:
    """Runs a program on each number of cores, and returns its lines of the table."""
    try:
        place = _lay_out(program, arguments.work.resolve(), arguments.sources)
    except layout.LayoutError as error:
        return [_line(program, "", "", "", f"not run: {error}")], False
    lines, results, good = [], [], True
    for cores in arguments.cores or program.cores:
        print(f"{program.name} on {cores} cores ...", flush=True)
        result = trial.run(program, cores, place)
        results.append(result)
        lines.append(_result_line(result, "passed"))
        good &= not result.problems
    unlike = trial.different(results)
    if unlike:
        lines.append(_line(program, "", "", "", "; ".join(unlike)))
    if program.checkpoint is not None and good and not arguments.no_kill:
        print(f"{program.name} is killed and resumed ...", flush=True)
        result = trial.resume(program, results[0].cores, place)
        lines.append(_result_line(result, "resumed after kill -9"))
        good &= not result.problems
    return lines, good and not unlike


def _lay_out(program: Program, work: pathlib.Path, sources: pathlib.Path | None) -> trial.Place:
    clones = [layout.source(sources, repository) for repository in program.repositories]
    python = layout.environment(work, program.environment)
    data = layout.data(work, program, python)
    folder = work / "runs" / program.name
    folder.mkdir(parents=True, exist_ok=True)
    variables = layout.variables(program, clones, data)
    return trial.Place(python, folder, data, clones[0] if clones else None, variables)


def _result_line(result: trial.Result, good: str) -> str:
    losses: Sequence[float] = result.losses
    ends = f"{losses[0]:.5g} to {losses[-1]:.5g}" if losses else ""
    text = "; ".join(result.problems) or good
    return _line(result.program, str(result.cores), f"{result.seconds:.0f}", ends, text)


def _line(program: Program, cores: str, seconds: str, losses: str, text: str) -> str:
    return f"| {program.name} | {program.version()} | {cores} | {seconds} | {losses} | {text} |"


if __name__ == "__main__":
    sys.exit(main())
