"""Imports TensorFlow once, and runs requested programs in copies of the process as it was then.

The import leaves no threads but OpenBLAS's, which knows how to be copied.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.machinery
import json
import os
import pathlib
import signal
import socket
import sys
import types
import warnings
from typing import Any

_MOST_BYTES = 1 << 20


def requested_program() -> tuple[types.CodeType, dict[str, Any]]:
    """Serves requests; in each copy that is to run a program, returns its code and namespace."""
    # What is frozen, the garbage collector of a copy does not look at, which would copy its memory.
    gc.disable()
    import tensorflow  # noqa: F401 (for the copies)

    gc.freeze()
    gc.enable()
    channel = socket.socket(fileno=int(sys.argv[1]))
    running = set()
    while True:
        message, files, _, _ = socket.recv_fds(channel, _MOST_BYTES, 2)
        if not message:
            break
        request = json.loads(message)
        if "wait" in request:
            pid = request["wait"]
            running.remove(pid)
            answer = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        else:
            with warnings.catch_warnings():
                # Of threads, which are OpenBLAS's.
                warnings.simplefilter("ignore", DeprecationWarning)
                answer = os.fork()
            if answer == 0:
                channel.close()
                return prepare(request, files)
            running.add(answer)
            for file in files:
                os.close(file)
        channel.send(json.dumps(answer).encode())
    for pid in running:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    os._exit(0)


def prepare(request: dict[str, Any], files: list[int]) -> tuple[types.CodeType, dict[str, Any]]:
    """Makes the process what `python` makes of a new one before it runs the program."""
    for number, file in enumerate(files, start=1):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    first, *arguments = request["start"]
    # Then, Python has not put this file's folder first.
    safe_path = getattr(sys.flags, "safe_path", False)
    if not safe_path:
        del sys.path[0]
    if first == "-c":
        file, code, *arguments = "<string>", *arguments
        folder = "" if not safe_path else None
        main.__loader__ = importlib.machinery.BuiltinImporter
    else:
        script = pathlib.Path(first)
        folder = first if script.is_dir() else str(script.parent) if not safe_path else None
        if script.is_dir():
            script /= "__main__.py"
        file, code = str(script), script.read_text()
        main.__file__ = file
        main.__loader__ = importlib.machinery.SourceFileLoader("__main__", file)
    if folder is not None:
        sys.path.insert(0, folder)
    sys.argv[:] = [first, *arguments]
    return compile(code, file, "exec", dont_inherit=True), main.__dict__


if __name__ == "__main__":
    exec(*requested_program())
