"""Finds the line of the user's Python code that made an op."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

from tf_tpu_ext import _native

# The first few frames are usually enough, and TensorFlow creates an object for each one requested.
_BLOCK = 8


def user_line(frames: Sequence[Any]) -> str:
    """Returns the innermost line of a stack that belongs to the user, as `file:line`.

    It is empty if all lines are TensorFlow's, Keras's or ours.

    Args:
        frames: The stack frames, outermost first, as in `tf.Operation.traceback`.
    """
    for end in range(len(frames), 0, -_BLOCK):
        for frame in reversed(frames[max(0, end - _BLOCK) : end]):
            if not _is_library_file(frame.filename):
                return f"{frame.filename}:{frame.lineno}"
    return ""


@functools.lru_cache(maxsize=4096)
def _is_library_file(path: str) -> bool:
    return bool(_native.library().TfTpuExt_IsLibraryFile(os.fsencode(path)))
