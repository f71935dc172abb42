"""What `tf-tpu check` does around a script without a target: it watches, and prints findings."""

from __future__ import annotations

import ctypes
import pathlib
import sys
from collections.abc import Sequence

import tf_tpu_ext
from tf_tpu_ext import _findings, _native, _page
from tf_tpu_ext.launcher import _program


def prepare(seed: int) -> None:
    """Has every program watched that is traced from now on.

    Args:
        seed: What decides in which order the cores' calls of the host come, from 0 to 2**64 - 1.
    """
    tf_tpu_ext.configure(check=True)
    _native.library().TfTpuExt_SetHostOrder(ctypes.c_uint64(seed))


def launch(
    program: _program.Program,
    arguments: Sequence[str],
    *,
    report: str | None = None,
    page: str | None = None,
) -> int:
    """Runs a program, and then prints what its checks have found.

    Args:
        program: What `find` found.
        arguments: Its command line.
        report: A file to which to write the findings as JSON, or None.
        page: A file to which to write a page with the findings, or None.

    Returns:
        The program's exit code if that is not 0; else 0 if nothing was found, and 1 if something
        was or if there was nothing to watch.
    """
    code = _program.run(program, list(arguments))
    found = tf_tpu_ext.findings()
    steps = _findings.checked_steps()
    sys.stdout.flush()
    if report is not None:
        pathlib.Path(report).write_text(_findings.to_json(found) + "\n")
    if page is not None:
        _page.report(page, title=program.name)
    if steps or found:
        text = _findings.to_text(found, steps)
    else:
        text = "the script has run no program on a TPU core, so nothing was checked."
    print(f"tf-tpu check: {text}", file=sys.stderr, flush=True)
    return code or int(bool(found) or not steps)
