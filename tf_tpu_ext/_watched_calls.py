"""Calls of TensorFlow that wait for workers: they are abandoned when a worker is lost.

TensorFlow repeats what a lost worker doesn't answer, and can't be interrupted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from tf_tpu_ext import _machine, _workers


class _Thread(threading.local):
    """Whether this thread belongs to a call."""

    calls = False


_this_thread = _Thread()


class Call:
    """A call on a thread of its own.

    Attributes:
        ended: Set when the call has ended.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        self.ended = threading.Event()
        self._value: Any = None
        self._error: BaseException | None = None
        threading.Thread(
            target=self._run, args=(function,), name="tpu_watched_call", daemon=True
        ).start()

    def _run(self, function: Callable[[], Any]) -> None:
        _this_thread.calls = True
        try:
            self._value = function()
        except BaseException as error:
            self._error = error
        finally:
            self.ended.set()

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value


def watched(
    function: Callable[[], Any],
    addresses: Mapping[str, str],
    lost: Callable[[str, str, str], Exception],
) -> Any:
    """Calls a function that waits for workers. Nested calls run directly.

    Args:
        function: What to call. It must release Python's lock while it waits.
        addresses: Where each worker listens, by the full name of its task.
        lost: Returns the error for a lost worker, given its task, its address and the reason.

    Returns:
        What the function returns.

    Raises:
        Exception: A worker gives no sign of life within `host_limit_seconds`. The call is
            abandoned.
    """
    if _this_thread.calls:
        return function()
    call = Call(function)
    half = _machine.machine().host_limit_seconds / 2
    while not call.ended.wait(half):
        for task, address in addresses.items():
            why = _workers.why_silent(address, half)
            if why is not None and not call.ended.is_set():
                raise lost(task, address, why)
    return call.result()
