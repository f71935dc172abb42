"""What `tf-tpu check` does around a script: it asks for verdicts, and prints them."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Sequence

import tf_tpu_ext
from tf_tpu_ext import _page
from tf_tpu_ext.launcher import _program
from tf_tpu_ext.verdict import _asking, _compiler, _table
from tf_tpu_ext.verdict._records import Verdict


def prepare(targets: Sequence[str], *, compute: bool = True) -> None:
    """Makes the virtual TPU the first target, and asks about every program from now on.

    Args:
        targets: Names such as `v5e-8`.
        compute: Whether programs do what they are written for, or nothing.

    Raises:
        RuntimeError: The TPU compiler is not installed.
        ValueError: There is no such target.
    """
    try:
        _compiler.find_plugin()
    except _compiler.UnavailableError as error:
        raise RuntimeError(str(error)) from error
    tf_tpu_ext.configure(target=targets, compute=compute)


def launch(
    program: _program.Program,
    arguments: Sequence[str],
    *,
    report: str | None = None,
    page: str | None = None,
) -> int:
    """Runs a program, and then prints what the targets' compiler says of what it compiled.

    Args:
        program: What `find` found.
        arguments: Its command line.
        report: A file to which to write the verdicts as JSON, or None.
        page: A file to which to write a page with the verdicts, or None.

    Returns:
        The program's exit code if that is not 0; else 0 if all programs compile and fit on all
        targets, and 1 if not or if there were none.
    """
    _asking.asker.progress = _show_progress
    code = _program.run(program, list(arguments))
    verdicts = tf_tpu_ext.verdicts()
    sys.stdout.flush()
    if report is not None:
        pathlib.Path(report).write_text(_table.to_json(verdicts) + "\n")
    if page is not None:
        _page.report(page, title=program.name)
    print(_summary(verdicts), file=sys.stderr, flush=True)
    return code or int(not verdicts or not all(verdict.ok for verdict in verdicts))


def _summary(verdicts: Sequence[Verdict]) -> str:
    if not verdicts:
        return "tf-tpu check: the script has compiled no program for a TPU, so nothing was checked."
    return _table.to_text(verdicts)


def _show_progress(text: str) -> None:
    if sys.stderr.isatty():
        line = f"tf-tpu check: {text}"[:100] if text else ""
        print(f"\r{line:<100}" if line else f"\r{'':100}\r", end="", file=sys.stderr, flush=True)
