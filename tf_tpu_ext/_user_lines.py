"""Which line of the user's Python made an op."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

from tf_tpu_ext import _native

# The first few frames mostly do, and TensorFlow makes an object of each that is asked for.
_BLOCK = 8


def user_line(frames: Sequence[Any]) -> str:
    """Returns the innermost line of a stack that is the user's, as `file:line`.

    It is empty if all are TensorFlow's, Keras's or ours.

    Args:
        frames: The outermost first, as of `tf.Operation.traceback`.
    """
    for end in range(len(frames), 0, -_BLOCK):
        for frame in reversed(frames[max(0, end - _BLOCK) : end]):
            if not _is_library_file(frame.filename):
                return f"{frame.filename}:{frame.lineno}"
    return ""


@functools.lru_cache(maxsize=4096)
def _is_library_file(path: str) -> bool:
    return bool(_native.library().TfTpuExt_IsLibraryFile(os.fsencode(path)))
