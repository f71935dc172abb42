"""What `tf-tpu check` does with targets: it asks their compiler and reports the verdicts."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import tf_tpu_ext
from tf_tpu_ext.launcher._check import Told
from tf_tpu_ext.verdict import _asking, _compiler, _table


def prepare(targets: Sequence[str], *, compute: bool = True) -> None:
    """Makes the virtual TPU match the first target and has every program checked from now on.

    Args:
        targets: Names such as `v5e-8`.
        compute: Whether programs compute, instead of doing nothing.

    Raises:
        RuntimeError: The TPU compiler is not installed.
        ValueError: There is no such target.
    """
    try:
        _compiler.find_plugin()
    except _compiler.UnavailableError as error:
        raise RuntimeError(str(error)) from error
    tf_tpu_ext.configure(target=targets, compute=compute)
    _asking.asker.progress = _show_progress


def tell() -> Told:
    """Returns the verdicts, which are good if there are any and all programs compile and fit."""
    verdicts = tf_tpu_ext.verdicts()
    if verdicts:
        text = _table.to_text(verdicts)
    else:
        text = "tf-tpu check: the script has compiled no program for a TPU, so nothing was checked."
    good = bool(verdicts) and all(verdict.ok for verdict in verdicts)
    return Told(text, _table.to_json(verdicts), good)


def _show_progress(text: str) -> None:
    if sys.stderr.isatty():
        line = f"tf-tpu check: {text}"[:100] if text else ""
        print(f"\r{line:<100}" if line else f"\r{'':100}\r", end="", file=sys.stderr, flush=True)
