"""Fault injection for tests: points in the runtime that fail or stall when reached."""

from __future__ import annotations

import ctypes
import json

from tf_tpu_ext import _native

POINTS = ("allocation", "compilation", "launch", "collective", "host_call", "transfer")


def arm(point: str, after: int = 0, *, stall_seconds: float = 0.0) -> None:
    """Arms a point for one fault.

    Args:
        point: One of `POINTS`; cc/base/fault_points.h says where they are.
        after: How many times the point is passed before the fault occurs.
        stall_seconds: How long the thread sleeps there. If 0, it fails instead.

    Raises:
        ValueError: There is no such point, or `after` is negative.
    """
    message = _native.text_of(
        "TfTpuExt_ArmFault",
        ctypes.c_char_p(point.encode()),
        ctypes.c_int64(after),
        ctypes.c_double(stall_seconds),
    )
    if message is not None:
        raise ValueError(message)


def disarm() -> None:
    """Disarms all points."""
    _native.library().TfTpuExt_DisarmFaults()


def counts() -> dict[str, dict[str, int]]:
    """Returns how often each point was reached while any was armed, and failed and stalled."""
    records = json.loads(_native.text_of("TfTpuExt_CountFaults") or "[]")
    return {record.pop("point"): record for record in records}
