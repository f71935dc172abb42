"""What `tf-tpu check` does without a target: it watches programs and reports what it finds."""

from __future__ import annotations

import ctypes

import tf_tpu_ext
from tf_tpu_ext import _findings, _native
from tf_tpu_ext.launcher._check import Told


def prepare(seed: int) -> None:
    """Has every program that is traced from now on watched.

    Args:
        seed: Determines the order of the cores' calls to the host, from 0 to 2**64 - 1.
    """
    tf_tpu_ext.configure(check=True)
    _native.library().TfTpuExt_SetHostOrder(ctypes.c_uint64(seed))


def tell() -> Told:
    """Returns what the checks have found, which is good if they ran and found nothing."""
    found = tf_tpu_ext.findings()
    steps = _findings.checked_steps()
    if steps or found:
        text = _findings.to_text(found, steps)
    else:
        text = "the script has run no program on a TPU core, so nothing was checked."
    good = bool(steps) and not found
    return Told(f"tf-tpu check: {text}", _findings.to_json(found), good)
