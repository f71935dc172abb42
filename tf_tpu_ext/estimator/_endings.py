"""Ends training, evaluation and prediction soon after errors, with the cause and no stray threads.

TPUEstimator runs threads for infeed and outfeed alongside the training loop. If one of the three
fails, tensorflow-estimator waits five seconds, closes the session, raises the most informative
error, and leaves threads behind. The classes in this module replace its own.
"""

from __future__ import annotations

import functools
import sys
import threading
from typing import Any

import tensorflow as tf
from tensorflow_estimator.python.estimator.tools import analytics
from tensorflow_estimator.python.estimator.tpu import error_handling, tpu_estimator

from tf_tpu_ext import _interrupts
from tf_tpu_ext.patches._changes import Changes, find

# How long a source that fails waits for errors from the others, which may have caused its own.
_GRACE_SECONDS = 0.3
# Threads end when their session is closed. A thread blocked by a user's function is left behind.
_JOIN_SECONDS = 10.0


class Rendezvous(error_handling.ErrorRendezvous):
    """Collects errors like its base class, and ends the threads of a run."""

    def __init__(self, num_sources: int) -> None:
        super().__init__(num_sources)
        self._errors: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._queues: list[Any] = []
        self._closer: threading.Thread | None = None
        self._ended = threading.Event()
        self._listener: _interrupts.Listener | None = None
        self._interrupted = False

    def watch(self, queue: Any, session: Any) -> None:
        """Watches the thread of a `_OpQueueContext` and its session."""
        self._queues.append(queue)
        if self._listener is None and _interrupts.is_possible():
            self._listener = _interrupts.Listener(functools.partial(self._interrupt, session))

    def _interrupt(self, session: Any) -> None:
        # A step may be long. It returns when its session is closed, and then Python's handler runs.
        self._interrupted = True
        _close(session)

    def record_error(self, source: str, exc_info: Any, session: Any = None) -> None:
        """Records an error and closes the session, if given, so that the other threads end."""
        error = exc_info[1]
        with self._lock:
            if self._ended.is_set() or isinstance(error, error_handling._IGNORED_ERRORS):
                return
            self._errors[source] = exc_info
            if _is_numeric(error):
                # The loop continues to its end.
                analytics.track_numerical_issues(exc_info)
                return
            if session is None or self._closer is not None:
                return
            self._closer = threading.Thread(
                target=self._close, args=(session,), name="SessionCloser", daemon=True
            )
        self._closer.start()

    def raise_errors(self, timeout_sec: float = 0) -> None:
        """Ends the threads and raises the most informative error, if any."""
        del timeout_sec
        self._end_threads()
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, Exception):
            # After Ctrl-C or the end of a generator, errors from the others are consequences.
            return
        if self._interrupted:
            # TensorFlow may have turned it into an error of its own along the way.
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
    """Returns whether the error is only a consequence of the session having been closed."""
    return isinstance(error, RuntimeError) and "closed Session" in str(error)


_StockQueue = tpu_estimator._OpQueueContext


class Queue(_StockQueue):  # type: ignore[misc, valid-type]
    """The work queue of an infeed or outfeed thread, watched by the rendezvous of its run."""

    def __init__(self, name: str, target: Any, args: Any) -> None:
        super().__init__(name, target, args)
        rendezvous = getattr(getattr(target, "__self__", None), "_rendezvous", None)
        if isinstance(rendezvous, Rendezvous):
            rendezvous.watch(self, args[0])


class OnceQueue(Queue):
    """A queue that forwards only the first signal."""

    def __init__(self, name: str, target: Any, args: Any) -> None:
        self._signalled = False
        super().__init__(name, target, args)

    def send_next_batch_signal(self, iterations: int) -> None:
        """Forwards the signal if it is the first."""
        if not self._signalled:
            self._queue.put(iterations)
            self._signalled = True


def _close(session: Any) -> None:
    try:
        session.close()
    except (RuntimeError, tf.errors.OpError) as error:
        tf.compat.v1.logging.error("The session can't be closed: %s", error)


class NoSignalHandler(tf.compat.v1.train.SessionRunHook):
    """Replaces a hook that makes Ctrl-C kill the process without running handlers."""

    def __init__(self) -> None:
        super().__init__()


def install(changes: Changes) -> None:
    """Replaces classes of tensorflow-estimator with those in this module."""
    find(error_handling, "_IGNORED_ERRORS")
    for name in ("record_error", "raise_errors"):
        changes.check(error_handling.ErrorRendezvous, name, vars(Rendezvous)[name])
    changes.check(_StockQueue, "send_next_batch_signal", OnceQueue.send_next_batch_signal)
    changes.replace(error_handling, "ErrorRendezvous", Rendezvous)
    changes.replace(tpu_estimator, "_OpQueueContext", Queue)
    changes.replace(tpu_estimator, "_OpSignalOnceQueueContext", OnceQueue)
    changes.replace(tpu_estimator, "InstallSignalHandlerHook", NoSignalHandler)
