"""Detects Ctrl-C while the main thread is in a long call.

Python runs signal handlers only when the main thread returns to the interpreter, but writes signal
numbers to a socket as they arrive. One thread of the process reads them for all listeners.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable

_lock = threading.Lock()
_listeners: list[Listener] = []
_reader: _Reader | None = None


def is_possible() -> bool:
    """Returns whether this is the main thread and Ctrl-C raises a KeyboardInterrupt."""
    in_main = threading.current_thread() is threading.main_thread()
    return in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler


class Listener:
    """Calls a function on another thread at each Ctrl-C, until stopped.

    Use it only if `is_possible` returns True.
    """

    def __init__(self, function: Callable[[], None]) -> None:
        global _reader
        self.function = function
        # Signals that came earlier are not for this listener.
        if _reader is not None:
            _reader.catch_up()
        with _lock:
            _listeners.append(self)
            if _reader is None:
                _reader = _Reader()
            _reader.install()

    def stop(self) -> None:
        """Stops listening, once the signals received so far have been handled."""
        global _reader
        reader = _reader
        assert reader is not None
        reader.catch_up()
        with _lock:
            _listeners.remove(self)
            # Only the main thread may reset Python's socket. If another thread stops the last
            # listener, the reader stays and the next listener reuses it.
            last = not _listeners and threading.current_thread() is threading.main_thread()
            if last:
                _reader = None
        if last:
            reader.end()


class _Reader:
    """The thread, and the socket pair that connects it to Python's interpreter."""

    def __init__(self) -> None:
        self._ours, self._python = socket.socketpair()
        self._python.setblocking(False)
        self._previous = -1
        self._caught_up = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._read, name="InterruptListener", daemon=True)
        self._thread.start()

    def install(self) -> None:
        """Subscribes to Python's signal numbers; the previous reader still gets them."""
        previous = signal.set_wakeup_fd(self._python.fileno(), warn_on_full_buffer=False)
        if previous != self._python.fileno():
            self._previous = previous

    def catch_up(self) -> None:
        """Waits until all numbers that have arrived have been read."""
        if threading.current_thread() is not self._thread:
            self._python.send(b"\0")
            self._caught_up.acquire()

    def end(self) -> None:
        """Restores the previous reader and ends the thread."""
        signal.set_wakeup_fd(self._previous)
        self._python.close()
        self._thread.join()
        self._ours.close()

    def _read(self) -> None:
        while received := self._ours.recv(64):
            numbers = received.replace(b"\0", b"")
            if numbers and self._previous >= 0:
                with contextlib.suppress(OSError):
                    os.write(self._previous, numbers)
            if signal.SIGINT in numbers:
                with _lock:
                    listeners = list(_listeners)
                for listener in listeners:
                    listener.function()
            for _ in range(received.count(0)):
                self._caught_up.release()
