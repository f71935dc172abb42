"""The processes of one pipeline, and the thread that starts and watches them."""

from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import itertools
import os
import pickle
import signal
import socket
import threading
import weakref
from collections.abc import Mapping
from multiprocessing import connection
from typing import Any

from tf_tpu_ext import _machine
from tf_tpu_ext.io import _forkserver
from tf_tpu_ext.io._errors import PipelineError
from tf_tpu_ext.io._iterations import Iterations

# The protocol that the oldest Python version in the other environment can read.
_PICKLE = 4
# How often the watching thread checks the time.
_TICK_SECONDS = 0.2
# The processing modes in which each reader reads the whole dataset.
_WHOLE = ("parallel_epochs", "OFF")
_END_SECONDS = 10.0

_alive: weakref.WeakSet[Processes] = weakref.WeakSet()


class _Process:
    """One process and the connection to it."""

    def __init__(self, python: str, environment: Mapping[str, str], iterations: Iterations) -> None:
        ours, theirs = socket.socketpair()
        requests, requested = socket.socketpair(type=socket.SOCK_SEQPACKET)
        iterations.add_process(requests.detach())
        read, written = os.pipe()
        self.output = _forkserver.Output(os.fdopen(read, "rb", buffering=0))
        try:
            files = [theirs.fileno(), requested.fileno(), written]
            self.process = _forkserver.start(python, environment, files)
        except BaseException:
            ours.close()
            self.output.file.close()
            raise
        finally:
            theirs.close()
            requested.close()
            os.close(written)
        self.connection = connection.Connection(ours.detach())
        self.asked: dict[int, concurrent.futures.Future[Any]] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def ask(self, action: str, **arguments: Any) -> concurrent.futures.Future[Any]:
        """Sends a request. The watching thread passes the answer to the future."""
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        with self._lock:
            number = next(self._numbers)
            self.asked[number] = future
            message = pickle.dumps({"do": action, "number": number, **arguments}, _PICKLE)
            try:
                self.connection.send_bytes(message)
            except OSError:
                future.set_exception(PipelineError(self.ending()))
        return future

    def take_answer(self) -> None:
        """Passes the next answer to the future that waits for it."""
        answer = pickle.loads(self.connection.recv_bytes())
        future = self.asked.pop(answer["number"])
        if "error" in answer:
            future.set_exception(PipelineError(answer["error"]))
        else:
            future.set_result(answer["value"])

    def close(self) -> None:
        """Closes the connection between the two processes."""
        self.connection.close()
        self.output.file.close()

    def ending(self) -> str:
        """Returns how the process ended, with its last output."""
        code = self.process.wait(_END_SECONDS)
        if code is None:
            how = "closed its connection"
        elif code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        else:
            how = f"ended with exit code {code}"
        last = "\n".join(self.output.last_lines or self.process.last_lines)
        return f"Process {self.process.pid} of the pipeline {how}." + (
            f" The last it wrote:\n{last}" if last else ""
        )


class Processes:
    """The processes that run one pipeline.

    Args:
        python: The interpreter that runs them.
        environment: Their environment variables.
        function: The location of the function that makes the dataset.
        arguments: The function's arguments, pickled.
        legacy: Whether the function's module is written for TensorFlow 1.
        readers: How many readers each process has.
        mode: What the readers read, in tf.data service terms.
    """

    def __init__(
        self,
        python: str,
        environment: Mapping[str, str],
        function: str,
        arguments: bytes,
        legacy: bool,
        readers: list[int],
        mode: str,
    ) -> None:
        self.function = function
        self.element_spec = b""
        self.iterations = Iterations()
        self.error: str | None = None
        self._python = python
        self._environment = dict(environment)
        self._request = {"function": function, "arguments": arguments, "legacy": legacy}
        self._readers = readers
        self._mode = mode
        self._processes: list[_Process] = []
        # Garbage collection, which may close other processes, can happen at any point.
        self._lock = threading.RLock()
        self._started = threading.Event()
        self._wake, self._waker = socket.socketpair()
        self._closing = False
        self._released = False
        self._owner = os.getpid()
        self._thread = threading.Thread(target=self._run, name=f"io:{function}", daemon=True)
        _alive.add(self)

    @property
    def pids(self) -> list[int]:
        """The IDs of the processes."""
        return [process.process.pid for process in self._processes]

    def start(self) -> None:
        """Starts the processes, which make the dataset and serve it.

        Raises:
            PipelineError: The function raised an error, or took longer than the wait limit.
        """
        self._thread.start()
        try:
            if not self._started.wait(_wait_limit()):
                self.fail(self._too_long())
            # The thread that sets the error may be about to end the processes.
            self._started.wait(_END_SECONDS)
            self._serve()
        except BaseException:
            self.close()
            raise

    def _serve(self) -> None:
        if self.error is not None:
            raise PipelineError(self.error)
        loads = [process.ask("load", **self._request) for process in self._processes]
        self.element_spec, *_ = [self._answer(load) for load in loads]
        first = self._processes[0]
        if self._readers == [1] and self._mode in _WHOLE:
            # tf.data service would do the same, with one more thread on the path of each element.
            self._answer(first.ask("read_alone"))
            return
        address = self._answer(first.ask("dispatch", readers=sum(self._readers)))
        served = [
            process.ask("read", dispatcher=address, readers=readers, mode=self._mode)
            for process, readers in zip(self._processes, self._readers, strict=True)
        ]
        for read in served:
            self._answer(read)

    def _answer(self, future: concurrent.futures.Future[Any]) -> Any:
        try:
            return future.result(_wait_limit())
        except concurrent.futures.TimeoutError:
            raise PipelineError(self._too_long()) from None
        except PipelineError as error:
            raise PipelineError(f"{self.function} failed in its process:\n{error}") from None

    def _too_long(self) -> str:
        return (
            f"{self.function} was not ready after the wait limit of {_wait_limit():g} s, so its "
            "process was ended. Make it faster, or raise the limit: "
            "tf_tpu_ext.configure(wait_limit_seconds=...)."
        )

    def fail(self, error: str) -> None:
        """Ends the processes because of an error. The first error counts."""
        with self._lock:
            if self._closing:
                return
            self.error = self.error or error
        self.iterations.fail(self.error)
        self._end()

    def release(self) -> None:
        """Ends the processes once no iteration needs them."""
        if os.getpid() != self._owner:
            return
        self._released = True
        if not self.iterations.close() or self.error is not None:
            self.close()

    def close(self) -> None:
        """Ends the processes."""
        if os.getpid() != self._owner:
            return  # a fork of the program; the pipelines belong to its parent
        with self._lock:
            self._closing = True
            self.error = self.error or f"The pipeline {self.function} has ended."
        # TensorFlow waits for iterations that read ahead of the program.
        self.iterations.fail(self.error)
        self.iterations.remove()
        with contextlib.suppress(OSError):
            self._waker.send(b"\0")
        self._end()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(_END_SECONDS)

    def _end(self) -> None:
        for process in self._processes:
            process.process.end()

    def _run(self) -> None:
        try:
            for _ in self._readers:
                if self._closing:
                    return
                self._processes.append(_Process(self._python, self._environment, self.iterations))
            if self._closing:
                self._end()
            self._started.set()
            self._watch()
        except OSError as error:
            self.fail(f"The process of {self.function} can't be started: {error}")
            self._started.set()
        finally:
            self._fail_requests()
            for process in self._processes:
                process.close()
            self._wake.close()
            self._waker.close()
            if self._released:
                self.iterations.remove()

    def _watch(self) -> None:
        """Receives answers and output until the end or an error."""
        handles: dict[Any, tuple[_Process, bool]] = {}
        for process in self._processes:
            handles[process.connection] = (process, True)
            handles[process.output.file] = (process, False)
        while not self._closing and self.error is None:
            for ready in connection.wait([*handles, self._wake], _TICK_SECONDS):
                if ready is self._wake:
                    return
                process, answers = handles[ready]
                if not answers:
                    if not process.output.forward():
                        del handles[ready]
                    continue
                try:
                    process.take_answer()
                except (EOFError, OSError):
                    while process.output.file in handles and process.output.forward():
                        pass
                    self.fail(process.ending())
                    return
            if self._released and not self.iterations.close():
                self.close()
            limit = _wait_limit()
            if self.iterations.longest_wait() > limit:
                self.fail(
                    f"The pipeline {self.function} gave no element within the wait limit of "
                    f"{limit:g} s, so its process was ended. Look for what it waits for, or raise "
                    "the limit: tf_tpu_ext.configure(wait_limit_seconds=...)."
                )

    def _fail_requests(self) -> None:
        for process in self._processes:
            for future in list(process.asked.values()):
                if not future.done():
                    future.set_exception(PipelineError(self.error or "It was closed."))


def _wait_limit() -> float:
    return float(_machine.machine().wait_limit_seconds)


@atexit.register
def _close_all() -> None:
    for processes in list(_alive):
        processes.close()
