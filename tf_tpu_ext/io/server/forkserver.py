"""Imports TensorFlow once, and runs each pipeline in a copy of this process.

Requests come over a socket that keeps messages apart. Each is the number of a pipeline's process
and what to do: `start` comes with the descriptors of the files that the process takes, and is
answered by its ID; `end` kills it. Once it has ended, its exit code is sent.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
import traceback
import warnings
from typing import Any

from . import serving

_PR_SET_PDEATHSIG = 1
_MOST_BYTES = 1 << 16
_FILES = 3


def main(handle: int, parent: int) -> None:
    """Starts and ends processes until the connection closes.

    Args:
        handle: The descriptor of the socket.
        parent: The ID of the process that started this one.
    """
    end_with(parent)
    Forkserver(socket.socket(fileno=handle), import_tensorflow()).serve()


def end_with(parent: int) -> None:
    """Ends this process when the thread that started it ends.

    Even a stopped process, which would not see a connection close, must not stay.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def import_tensorflow() -> BaseException | None:
    """Imports TensorFlow; returns the error if that fails.

    The import leaves no threads but OpenBLAS's, which knows how to be copied.
    """
    # What is frozen, the garbage collector of a copy does not look at, which would copy its memory.
    gc.disable()
    try:
        import tensorflow  # noqa: F401 (for the copies)
    except Exception as error:
        return error
    finally:
        gc.freeze()
        gc.enable()
    return None


class Forkserver:
    """Starts copies of this process and tells how they have ended.

    Args:
        channel: The connection to the program.
        failure: Why TensorFlow could not be imported, or None.
    """

    def __init__(self, channel: socket.socket, failure: BaseException | None) -> None:
        """Starts nothing yet."""
        self._channel = channel
        self._failure = failure
        # By the descriptor that tells their end: number and ID.
        self._running: dict[int, tuple[int, int]] = {}
        self._poll = select.poll()
        self._poll.register(channel, select.POLLIN)

    def serve(self) -> None:
        """Serves until the connection closes, which ends the processes, too."""
        while True:
            for ready, _ in self._poll.poll():
                if ready != self._channel.fileno():
                    self._tell_end(ready)
                    continue
                message, files, _, _ = socket.recv_fds(self._channel, _MOST_BYTES, _FILES)
                if not message:
                    return
                request = json.loads(message)
                if "start" in request:
                    self._start(request["start"], request["folder"], files)
                else:
                    self._end(request["end"])

    def _start(self, number: int, folder: str, files: list[int]) -> None:
        own = os.getpid()
        with warnings.catch_warnings():
            # Of threads, which are OpenBLAS's.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            self._become_pipeline(own, folder, files)
        for file in files:
            os.close(file)
        ended = os.pidfd_open(pid)
        self._running[ended] = (number, pid)
        self._poll.register(ended, select.POLLIN)
        self._say(started=number, pid=pid)

    def _become_pipeline(self, parent: int, folder: str, files: list[int]) -> None:
        try:
            # Ctrl-C goes to the program, which then ends its pipelines.
            os.setsid()
            end_with(parent)
            self._channel.close()
            for other in self._running:
                os.close(other)
            connection, requests, stderr = files
            os.dup2(stderr, 2)
            os.close(stderr)
            os.chdir(folder)
            # Python reseeds its own generator in a copy, NumPy does not.
            if "numpy" in sys.modules:
                sys.modules["numpy"].random.seed()
            serving.main(connection, requests, self._failure)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def _tell_end(self, ended: int) -> None:
        number, pid = self._running.pop(ended)
        self._poll.unregister(ended)
        os.close(ended)
        # What it has started. Until it is waited for, its ID can't be another's.
        _kill_group(pid)
        status = os.waitpid(pid, 0)[1]
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        self._say(ended=number, code=code)

    def _end(self, number: int) -> None:
        for running, pid in self._running.values():
            if running == number:
                _kill_group(pid)

    def _say(self, **answer: Any) -> None:
        self._channel.send(json.dumps(answer).encode())


def _kill_group(pid: int) -> None:
    for kill in (os.killpg, os.kill):  # it may not lead a group yet
        try:
            kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
