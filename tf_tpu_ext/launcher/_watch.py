"""What `tf-tpu check` does without a target: it watches programs, and tells what it has found."""

from __future__ import annotations

import ctypes

import tf_tpu_ext
from tf_tpu_ext import _findings, _native
from tf_tpu_ext.launcher._check import Told


def prepare(seed: int) -> None:
    """Has every program watched that is traced from now on.

    Args:
        seed: What decides in which order the cores' calls of the host come, from 0 to 2**64 - 1.
    """
    tf_tpu_ext.configure(check=True)
    _native.library().TfTpuExt_SetHostOrder(ctypes.c_uint64(seed))


def tell() -> Told:
    """Returns what the checks have found. It is good if there were any, and they found nothing."""
    found = tf_tpu_ext.findings()
    steps = _findings.checked_steps()
    if steps or found:
        text = _findings.to_text(found, steps)
    else:
        text = "the script has run no program on a TPU core, so nothing was checked."
    good = bool(steps) and not found
    return Told(f"tf-tpu check: {text}", _findings.to_json(found), good)
