"""Processes of tests that need not import TensorFlow each for itself.

What `python` would run in a new process runs in a copy of one that has imported TensorFlow, and
done nothing with it. A test whose subject is the start of a program uses `subprocess` instead.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import tf_tpu_ext

# Variables that Python or TensorFlow's import reads, but for those that are read later.
_READ_AT_IMPORT = ("CUDA_", "KERAS", "LD_", "MKL_", "OMP_", "OPENBLAS_", "PYTHON", "TF_", "XLA_")
_READ_LATE = ("TF_CONFIG", "TF_NUM_", "TF_TPU_EXT_")
_SERVER = str(pathlib.Path(__file__).resolve().with_name("imported_server.py"))
_MOST_BYTES = 1 << 20
# The folder of the command `tf-tpu`.
CLI = pathlib.Path(tf_tpu_ext.__file__).parent / "cli"
PYTHON = [sys.executable, "-X", "faulthandler"]
# With it, TensorFlow leaves out its access to Google Cloud Storage, as these commands need it.
_WITHOUT_STORAGE = {"TF_USE_MODULAR_FILESYSTEM": "TRUE"}
_REPLACE_STORAGE = ("check", "run")
# Python puts the working folder first, and the checkout has no library.
FOLDER = pathlib.Path(__file__).resolve().parent

_servers: dict[frozenset[tuple[str, str]], _Server] = {}
_lock = threading.Lock()


class Process:
    """A process, with the part of `subprocess.Popen` that tests need."""

    def __init__(self, server: _Server, arguments: list[str], pid: int) -> None:
        self.args = arguments
        self.pid = pid
        self.returncode: int | None = None
        self._server = server
        # Until the server is asked for the status, the ID stays that of the process.
        self._handle = os.pidfd_open(pid)

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._handle], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            os.close(self._handle)
            self.returncode = self._server.ask({"wait": self.pid})
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(
    arguments: Sequence[str | pathlib.Path],
    *,
    stdout: int,
    stderr: int,
    env: Mapping[str, str] | None = None,
    cwd: pathlib.Path | None = None,
) -> Process:
    """Starts what `python ARGUMENTS` would start.

    Args:
        arguments: A script, or a folder with a `__main__.py`, or "-c" and code; then its arguments.
        stdout: The descriptor of the file that is its output.
        stderr: That of its errors.
        env: Its environment variables, of this process by default.
        cwd: Its folder, that of the tests by default.
    """
    environment = dict(os.environ if env is None else env)
    command = [str(argument) for argument in arguments]
    with _lock:
        at_import = {
            name: value
            for name, value in environment.items()
            if name.startswith(_READ_AT_IMPORT) and not name.startswith(_READ_LATE)
        }
        if command[0] == str(CLI) and command[1] in _REPLACE_STORAGE:
            at_import |= _WITHOUT_STORAGE
        key = frozenset(at_import.items())
        if key not in _servers:
            _servers[key] = _Server({**environment, **at_import})
        server = _servers[key]
    request = {"start": command, "environment": environment, "folder": str(cwd or FOLDER)}
    pid = server.ask(request, [stdout, stderr])
    return Process(server, command, pid)


def run(
    arguments: Sequence[str | pathlib.Path],
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
    cwd: pathlib.Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs what `python ARGUMENTS` would run, see `start`, and returns its output.

    Raises:
        subprocess.TimeoutExpired: It has not ended in time, and has been killed.
    """
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        process = start(arguments, stdout=stdout.fileno(), stderr=stderr.fileno(), env=env, cwd=cwd)
        expired = None
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            expired = error
            process.kill()
            process.wait()
        # Descriptors of the same file share their position.
        for file in (stdout, stderr):
            file.seek(0)
        output, errors = stdout.read(), stderr.read()
    if expired is not None:
        raise subprocess.TimeoutExpired(expired.cmd, timeout, output, errors)
    assert process.returncode is not None
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def tf_tpu(
    *arguments: str | pathlib.Path,
    timeout: float,
    env: Mapping[str, str] | None = None,
    cwd: pathlib.Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs what `tf-tpu ARGUMENTS` would run, see `run`."""
    return run([CLI, *arguments], timeout=timeout, env=env, cwd=cwd)


def close() -> None:
    """Ends the processes that have imported TensorFlow, and all that they have started."""
    with _lock:
        for server in _servers.values():
            server.close()
        _servers.clear()


class _Server:
    """The process that imports TensorFlow and is copied."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._channel, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        with theirs:
            self._popen = subprocess.Popen(
                [*PYTHON, _SERVER, str(theirs.fileno())],
                env=environment,
                cwd=FOLDER,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def ask(self, request: dict[str, Any], files: Sequence[int] = ()) -> int:
        with self._lock:
            socket.send_fds(self._channel, [json.dumps(request).encode()], files)
            answer = self._channel.recv(_MOST_BYTES)
        assert answer, "The process that imports TensorFlow has ended."
        return int(json.loads(answer))

    def close(self) -> None:
        self._channel.close()
        self._popen.wait()
