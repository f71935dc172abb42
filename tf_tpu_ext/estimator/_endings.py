"""How training, evaluation and prediction end: with their cause, soon, and with no thread left.

TPUEstimator runs threads for infeed and outfeed beside the training loop. Where one of the three
fails, tensorflow-estimator waits for five seconds, closes the session, raises the most telling
error, and leaves threads behind. The classes here take the places of its own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from typing import Any

import tensorflow as tf
from tensorflow_estimator.python.estimator.tools import analytics
from tensorflow_estimator.python.estimator.tpu import error_handling, tpu_estimator

from tf_tpu_ext.patches._changes import Changes, find

# A source that fails waits so long for errors of the others, which may have caused its own.
_GRACE_SECONDS = 0.3
# Threads end as soon as their session is closed. One that a user's function holds is let go.
_JOIN_SECONDS = 10.0


class Rendezvous(error_handling.ErrorRendezvous):
    """Collects errors as its base class does, and ends the threads of a run."""

    def __init__(self, num_sources: int) -> None:
        super().__init__(num_sources)
        self._errors: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._queues: list[Any] = []
        self._closer: threading.Thread | None = None
        self._ended = threading.Event()
        self._listener: InterruptListener | None = None
        self._interrupted = False

    def watch(self, queue: Any, session: Any) -> None:
        """Takes charge of the thread of a `_OpQueueContext`, and of the session it works for."""
        self._queues.append(queue)
        if self._listener is None and InterruptListener.is_possible():
            self._listener = InterruptListener(session)

    def record_error(self, source: str, exc_info: Any, session: Any = None) -> None:
        """Keeps an error; closes the session, if one is given, so that the others end."""
        error = exc_info[1]
        with self._lock:
            if self._ended.is_set() or isinstance(error, error_handling._IGNORED_ERRORS):
                return
            self._errors[source] = exc_info
            if _is_numeric(error):
                # The loop itself goes on to its end.
                analytics.track_numerical_issues(exc_info)
                return
            if session is None or self._closer is not None:
                return
            self._closer = threading.Thread(
                target=self._close, args=(session,), name="SessionCloser", daemon=True
            )
        self._closer.start()

    def raise_errors(self, timeout_sec: float = 0) -> None:
        """Ends the threads and raises the most telling error, if there is any."""
        del timeout_sec
        self._end_threads()
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, Exception):
            # Ctrl-C or the end of a generator: what the others say then is a consequence of it.
            return
        if self._interrupted:
            # TensorFlow may have turned it into an error of its own on the way.
            raise KeyboardInterrupt from None
        causes = {k: e for k, e in self._errors.items() if not (e and _is_of_closed_session(e[1]))}
        if any(causes.values()):
            self._errors = causes
        super().raise_errors()

    def _close(self, session: Any) -> None:
        self._ended.wait(_GRACE_SECONDS)
        _close(session)

    def _end_threads(self) -> None:
        with self._lock:
            self._ended.set()
        if self._listener is not None:
            self._listener.stop()
            self._interrupted = self._listener.interrupted
            self._listener = None
        for queue in self._queues:
            queue.stop()
        threads = [queue._thread for queue in self._queues]
        if self._closer is not None:
            threads.append(self._closer)
        for thread in threads:
            thread.join(_JOIN_SECONDS)
            if thread.is_alive():
                tf.compat.v1.logging.error(
                    "The thread %s has not ended after %g s: a function of the input pipeline or "
                    "of a host call does not return. It is left behind.",
                    thread.name,
                    _JOIN_SECONDS,
                )
        self._queues.clear()


def _is_numeric(error: Any) -> bool:
    op = getattr(error, "op", None)
    return getattr(op, "type", None) == "CheckNumerics"


def _is_of_closed_session(error: BaseException) -> bool:
    """Whether the error only tells that something else has closed the session."""
    return isinstance(error, RuntimeError) and "closed Session" in str(error)


_StockQueue = tpu_estimator._OpQueueContext


class Queue(_StockQueue):  # type: ignore[misc, valid-type]
    """The work queue of an infeed or outfeed thread, in the charge of its run's rendezvous."""

    def __init__(self, name: str, target: Any, args: Any) -> None:
        super().__init__(name, target, args)
        rendezvous = getattr(getattr(target, "__self__", None), "_rendezvous", None)
        if isinstance(rendezvous, Rendezvous):
            rendezvous.watch(self, args[0])


class OnceQueue(Queue):
    """A queue that passes on the first signal only."""

    def __init__(self, name: str, target: Any, args: Any) -> None:
        self._signalled = False
        super().__init__(name, target, args)

    def send_next_batch_signal(self, iterations: int) -> None:
        """Passes the signal on if it is the first."""
        if not self._signalled:
            self._queue.put(iterations)
            self._signalled = True


class InterruptListener:
    """Lets Ctrl-C end a step at once, as a KeyboardInterrupt.

    Python handles a signal when the main thread comes back to it; but that is in a step that may
    take long. The interpreter also writes the signal's number to a socket, whose reader closes the
    session: then the step returns, and the program's own handler runs.
    """

    def __init__(self, session: Any) -> None:
        self.interrupted = False
        self._session = session
        self._sockets = socket.socketpair()
        self._sockets[1].setblocking(False)
        self._previous = signal.set_wakeup_fd(self._sockets[1].fileno(), warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._listen, name="InterruptListener", daemon=True)
        self._thread.start()

    @staticmethod
    def is_possible() -> bool:
        """Whether this is the main thread, and Ctrl-C is to raise a KeyboardInterrupt."""
        in_main = threading.current_thread() is threading.main_thread()
        return in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def stop(self) -> None:
        """Stops listening."""
        signal.set_wakeup_fd(self._previous)
        reader, writer = self._sockets
        writer.close()
        self._thread.join()
        reader.close()

    def _listen(self) -> None:
        while numbers := self._sockets[0].recv(64):
            if self._previous >= 0:
                # Another listener was there before.
                with contextlib.suppress(OSError):
                    os.write(self._previous, numbers)
            if signal.SIGINT in numbers:
                self.interrupted = True
                _close(self._session)


def _close(session: Any) -> None:
    try:
        session.close()
    except (RuntimeError, tf.errors.OpError) as error:
        tf.compat.v1.logging.error("The session can't be closed: %s", error)


class NoSignalHandler(tf.compat.v1.train.SessionRunHook):
    """Stands for the hook that made Ctrl-C kill the process without its handlers."""

    def __init__(self) -> None:
        super().__init__()


def install(changes: Changes) -> None:
    """Puts these classes in the places of tensorflow-estimator's own."""
    find(error_handling, "_IGNORED_ERRORS")
    for name in ("record_error", "raise_errors"):
        changes.check(error_handling.ErrorRendezvous, name, vars(Rendezvous)[name])
    changes.check(_StockQueue, "send_next_batch_signal", OnceQueue.send_next_batch_signal)
    changes.replace(error_handling, "ErrorRendezvous", Rendezvous)
    changes.replace(tpu_estimator, "_OpQueueContext", Queue)
    changes.replace(tpu_estimator, "_OpSignalOnceQueueContext", OnceQueue)
    changes.replace(tpu_estimator, "InstallSignalHandlerHook", NoSignalHandler)
