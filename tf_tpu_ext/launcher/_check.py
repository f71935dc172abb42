"""Runs a script for `tf-tpu check` and reports the results."""

from __future__ import annotations

import dataclasses
import pathlib
import sys
from collections.abc import Callable, Sequence

from tf_tpu_ext import _page
from tf_tpu_ext.launcher import _program


@dataclasses.dataclass(frozen=True)
class Told:
    """What there is to report about a script that has run.

    Attributes:
        text: The report for people to read.
        json: The same as a JSON array.
        good: Whether something was checked and nothing is wrong.
    """

    text: str
    json: str
    good: bool


def launch(
    program: _program.Program,
    arguments: Sequence[str],
    tell: Callable[[], Told],
    *,
    report: str | None = None,
    page: str | None = None,
) -> int:
    """Runs a program and then prints what there is to report about it.

    Args:
        program: The result of `find`.
        arguments: The program's command line.
        tell: Returns what there is to report.
        report: A file for the same as JSON, or None.
        page: A file for a page that includes it, or None.

    Returns:
        The program's exit code if that is not 0; otherwise 0 if all is good, and 1 if not.
    """
    code = _program.run(program, list(arguments))
    told = tell()
    sys.stdout.flush()
    if report is not None:
        pathlib.Path(report).write_text(told.json + "\n")
    if page is not None:
        _page.report(page, title=program.name)
    print(told.text, file=sys.stderr, flush=True)
    return code or int(not told.good)
