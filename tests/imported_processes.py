"""Processes of tests that need not import TensorFlow each for itself."""

from __future__ import annotations

import json
import pathlib
import signal
import subprocess
import sys

# Imports TensorFlow once; runs every request in a copy of the process as it was then. The import
# leaves no threads but OpenBLAS's, which knows how to be copied. What is frozen, the garbage
# collector of a copy does not look at, which would copy its memory.
_SERVER = """
def requested():
    import gc, json, os, signal, sys
    gc.disable()
    import tensorflow
    gc.freeze()
    gc.enable()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            code, arguments, environment, limit, *files = json.loads(line)
            for number, file in enumerate([os.devnull, *files]):
                opened = os.open(file, os.O_RDWR)
                os.dup2(opened, number)
                os.close(opened)
            os.environ.clear()
            os.environ.update(environment)
            sys.argv[1:] = arguments
            signal.setitimer(signal.ITIMER_REAL, limit)
            return code
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    os._exit(0)

exec(compile(requested(), "<string>", "exec"))
"""
# Variables that nothing reads before the first import of the package or the first op.
_READ_LATE = ("PYTEST_", "TF_TPU_EXT_", "TF_NUM_")
PYTHON = [sys.executable, "-X", "faulthandler", "-c"]
# Python puts the working folder first, and the checkout has no library.
FOLDER = pathlib.Path(__file__).resolve().parent


class ImportedProcesses:
    """Runs code in copies of processes that have imported TensorFlow, which takes seconds."""

    def __init__(self) -> None:
        # By the environment in which they did.
        self._servers: dict[frozenset[tuple[str, str]], subprocess.Popen[str]] = {}

    def run(
        self,
        code: str,
        arguments: tuple[str, ...],
        environment: dict[str, str],
        timeout: float,
        folder: pathlib.Path,
    ) -> subprocess.CompletedProcess[str]:
        """Does what `subprocess.run` does; keeps output in the folder."""
        server = self._server_in(environment)
        assert server.stdin is not None
        assert server.stdout is not None
        files = [folder / "stdout", folder / "stderr"]
        for file in files:
            file.write_bytes(b"")
        request = [code, arguments, environment, timeout, *map(str, files)]
        print(json.dumps(request), file=server.stdin, flush=True)
        answer = server.stdout.readline()
        assert answer, "The process that imports TensorFlow has ended."
        status = int(answer)
        stdout, stderr = (file.read_text() for file in files)
        if status == -signal.SIGALRM:
            raise subprocess.TimeoutExpired(code, timeout, stdout, stderr)
        return subprocess.CompletedProcess([*PYTHON, code, *arguments], status, stdout, stderr)

    def close(self) -> None:
        for server in self._servers.values():
            server.communicate()

    def _server_in(self, environment: dict[str, str]) -> subprocess.Popen[str]:
        read_at_import = {
            name: value for name, value in environment.items() if not name.startswith(_READ_LATE)
        }
        key = frozenset(read_at_import.items())
        if key not in self._servers:
            self._servers[key] = subprocess.Popen(
                [*PYTHON, _SERVER],
                env=read_at_import,
                cwd=FOLDER,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        return self._servers[key]
