"""The iterations over a pipeline, which the native library runs without Python."""

from __future__ import annotations

import ctypes
from typing import Any

from tf_tpu_ext import _interrupts, _native

_listener: _interrupts.Listener | None = None


class Iterations:
    """The iterations over a pipeline in this process; see cc/data/pipeline.h."""

    def __init__(self) -> None:
        self.number = int(_call("TfTpuExt_AddPipeline", ctypes.c_int64))
        _hear_interrupts()

    def add_process(self, requests: int) -> None:
        """Adds a process that receives requests at the other end of a socket.

        Args:
            requests: The socket's descriptor, which the library owns from now on.
        """
        _call("TfTpuExt_AddPipelineProcess", None, ctypes.c_int64(self.number), requests)

    def fail(self, error: str) -> None:
        """Ends all present and future iterations with an error. The first error counts."""
        text = error.encode(errors="replace").replace(b"\0", b" ")
        _call("TfTpuExt_FailPipeline", None, ctypes.c_int64(self.number), text)

    def close(self) -> int:
        """Lets no more iterations begin and returns how many are still running."""
        return int(_call("TfTpuExt_ClosePipeline", ctypes.c_int, ctypes.c_int64(self.number)))

    def longest_wait(self) -> float:
        """Returns the number of seconds that the longest-waiting iteration has waited."""
        number = ctypes.c_int64(self.number)
        return float(_call("TfTpuExt_PipelineWait", ctypes.c_double, number))

    def remove(self) -> None:
        """Forgets the pipeline."""
        _call("TfTpuExt_RemovePipeline", None, ctypes.c_int64(self.number))


def _call(name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(_native.library(), name)
    function.restype = result
    return function(*arguments)


def _hear_interrupts() -> None:
    global _listener
    # One listener per process, because pipelines may end on any thread.
    if _listener is None and _interrupts.is_possible():
        _listener = _interrupts.Listener(lambda: _call("TfTpuExt_InterruptPipelines", None))
