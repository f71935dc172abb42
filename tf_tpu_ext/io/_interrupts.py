"""Ctrl-C ends waits for elements, in which the main thread sees no signal."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import weakref

from tf_tpu_ext.io._reading import Iterators

_listening: weakref.WeakSet[Iterators] = weakref.WeakSet()


class _Listener:
    """Reads the numbers of signals that Python writes as they arrive, whatever its threads do."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._previous = -1
        threading.Thread(target=self._listen, name="io:interrupts", daemon=True).start()

    def install(self) -> None:
        """Asks Python for the numbers; who asked before still gets them."""
        previous = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        if previous != self._writer.fileno():
            self._previous = previous

    def _listen(self) -> None:
        while numbers := self._reader.recv(64):
            if self._previous >= 0:
                with contextlib.suppress(OSError):
                    os.write(self._previous, numbers)
            if signal.SIGINT in numbers:
                for iterators in list(_listening):
                    iterators.interrupt()


_listener: _Listener | None = None


def listen(iterators: Iterators) -> None:
    """Has Ctrl-C end the waits of iterators, if it raises KeyboardInterrupt in this program."""
    global _listener
    _listening.add(iterators)
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    if _listener is None:
        _listener = _Listener()
    _listener.install()
