"""Pages of a report for tests, of a program that does all that such a page shows."""

from __future__ import annotations

import pathlib

import imported_processes

PROGRAM = pathlib.Path(__file__).with_name("report_program.py")


def write_page(path: pathlib.Path, cores: int, *target: str) -> None:
    """Runs the program, with a target for the compiler of a real TPU if it is to be asked."""
    done = imported_processes.run([PROGRAM, str(cores), path, *target], timeout=200)
    assert done.returncode == 0, done.stderr
