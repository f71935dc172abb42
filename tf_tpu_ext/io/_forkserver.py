"""Processes for pipelines: copies of a process that has imported TensorFlow.

The first pipeline waits for the import, which takes seconds; later ones start at once.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import itertools
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from multiprocessing import connection
from typing import IO, Any

_PROGRAM = pathlib.Path(__file__).resolve().parent / "server"
# How long TensorFlow stays imported while no pipeline runs.
_IDLE_SECONDS = 60.0
_END_SECONDS = 10.0
_LAST_LINES = 20
_MOST_BYTES = 1 << 16

_Key = tuple[str, frozenset[tuple[str, str]]]
_servers: dict[_Key, _Forkserver] = {}
# Garbage collection, which may end processes, can happen at any point.
_lock = threading.RLock()


def start(python: str, environment: Mapping[str, str], files: list[int]) -> Process:
    """Starts a process in the current folder that serves a pipeline.

    Args:
        python: The interpreter that runs it.
        environment: Its environment variables.
        files: The descriptors of its connection, of its socket with requests for iterations and of
            its stderr. The caller closes its own.

    Raises:
        OSError: The interpreter can't be started.
    """
    key = (python, frozenset(environment.items()))
    with _lock:
        server = _servers.get(key)
        if server is None:
            for other in list(_servers.values()):
                other.retire_if_idle()
            server = _servers[key] = _Forkserver(key)
        return server.start(files)


class Output:
    """What a process writes to stderr."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file: Any = file
        self.last_lines: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)

    def forward(self) -> bool:
        """Copies the next part to our own stderr; returns False at the end."""
        written = os.read(self.file.fileno(), 1 << 16)
        text = written.decode(errors="replace")
        self.last_lines.extend(line for line in text.splitlines() if line.strip())
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)
        return bool(written)


class Process:
    """A process that serves a pipeline."""

    def __init__(self, server: _Forkserver, number: int) -> None:
        self._server = server
        self._number = number
        self._started: int | None = None
        self._code: int | None = None
        self._ended = threading.Event()

    @property
    def pid(self) -> int:
        """Its ID. Before it has started, that of the process that imports TensorFlow."""
        return self._started or self._server.pid

    @property
    def last_lines(self) -> list[str]:
        """The last output of the process that imports TensorFlow, if this one has not started."""
        return [] if self._started else list(self._server.output.last_lines)

    def wait(self, seconds: float) -> int | None:
        """Returns the exit code, as `subprocess` gives it, or None if it has not ended in time."""
        self._ended.wait(seconds)
        return self._code

    def end(self) -> None:
        """Kills the process and those that it has started."""
        with _lock:
            if self._ended.is_set():
                return
            self._server.ask(end=self._number)
            # Otherwise it ends as soon as it starts.
            started = self._started is not None
        if not started or self._server.is_current_thread():
            return
        if self.wait(_END_SECONDS) is None:
            self._server.kill()
            self.wait(_END_SECONDS)

    def set_started(self, pid: int) -> None:
        """Takes note of the start."""
        self._started = pid

    def set_ended(self, code: int) -> None:
        """Takes note of the end."""
        self._code = code
        self._ended.set()


class _Forkserver:
    """The process that imports TensorFlow, and the thread that starts and watches it."""

    def __init__(self, key: _Key) -> None:
        self.output: Output
        self._key = key
        self._numbers = itertools.count()
        self._processes: dict[int, Process] = {}
        self._channel, self._theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        self._popen: subprocess.Popen[bytes] | OSError | None = None
        self._launched = threading.Event()
        # The kernel ends a process along with the thread that started it, so that thread stays.
        self._thread = threading.Thread(target=self._run, name="io:forkserver", daemon=True)
        self._thread.start()
        self._launched.wait()
        if isinstance(self._popen, OSError):
            self._channel.close()
            raise self._popen

    @property
    def pid(self) -> int:
        assert isinstance(self._popen, subprocess.Popen)
        return self._popen.pid

    def is_current_thread(self) -> bool:
        return threading.current_thread() is self._thread

    def start(self, files: list[int]) -> Process:
        number = next(self._numbers)
        process = self._processes[number] = Process(self, number)
        self.ask(files, start=number, folder=os.getcwd())
        return process

    def ask(self, files: list[int] = [], **request: Any) -> None:  # noqa: B006 (not changed)
        # If it has ended, the thread tells all processes.
        with contextlib.suppress(OSError):
            socket.send_fds(self._channel, [json.dumps(request).encode()], files)

    def kill(self) -> None:
        """Kills the process, and with it all that it has started."""
        assert isinstance(self._popen, subprocess.Popen)
        self._popen.kill()

    def retire_if_idle(self) -> bool:
        """Ends the process if no pipeline runs. Call it with the lock."""
        if self._processes:
            return False
        _servers.pop(self._key, None)
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)
        return True

    def join(self) -> None:
        self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        python, environment = self._key
        try:
            popen = subprocess.Popen(
                [python, str(_PROGRAM), str(self._theirs.fileno()), str(os.getpid())],
                env=dict(environment),
                pass_fds=[self._theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            self._popen = error
            _servers.pop(self._key, None)
            return
        else:
            assert popen.stderr is not None
            self._popen, self.output = popen, Output(popen.stderr)
        finally:
            self._theirs.close()
            self._launched.set()
        try:
            self._watch()
        finally:
            self._finish(popen)

    def _watch(self) -> None:
        """Receives answers and output until the process ends or is not needed any more."""
        handles: list[Any] = [self._channel, self.output.file]
        while True:
            ready = connection.wait(handles, _IDLE_SECONDS)
            if self.output.file in ready and not self.output.forward():
                handles.remove(self.output.file)
            if self._channel in ready and not self._take_answer():
                break
            if not ready:
                with _lock:
                    if self.retire_if_idle():
                        break
        while self.output.file in handles and self.output.forward():
            pass

    def _take_answer(self) -> bool:
        try:
            message = self._channel.recv(_MOST_BYTES)
        except OSError:
            return False
        if not message:
            return False
        answer = json.loads(message)
        with _lock:
            if "started" in answer:
                self._processes[answer["started"]].set_started(answer["pid"])
            else:
                self._processes.pop(answer["ended"]).set_ended(answer["code"])
        return True

    def _finish(self, popen: subprocess.Popen[bytes]) -> None:
        with _lock:
            if _servers.get(self._key) is self:
                del _servers[self._key]
        try:
            code = popen.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            popen.kill()
            code = popen.wait()
        with _lock:
            for process in self._processes.values():
                process.set_ended(code)
            self._processes.clear()
            self._channel.close()
        self.output.file.close()


@atexit.register
def _retire_all() -> None:
    with _lock:
        servers = list(_servers.values())
        retired = [server for server in servers if server.retire_if_idle()]
    for server in retired:
        server.join()


def _forget() -> None:
    """In a fork of the program, the processes belong to its parent."""
    global _lock
    _lock = threading.RLock()
    _servers.clear()


os.register_at_fork(after_in_child=_forget)
