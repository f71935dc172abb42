"""The TPU compiler from the package libtpu, which runs in its own process."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
from typing import IO, Any

INSTALL = "pip install 'tf_tpu_ext[verdict]' (or: pip install libtpu)"
_WORKER = pathlib.Path(__file__).with_name("_worker.py")
# Without these, it would ask the metadata server of Google's machines where it is, and hold a lock
# that only a process with real chips needs. The type is not used: each question names a topology.
_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_LOG_DIR": "disabled",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


class UnavailableError(Exception):
    """The TPU compiler can't be asked; the message says why."""


@dataclasses.dataclass(frozen=True)
class Files:
    """The files of a question.

    Attributes:
        module: The module in question, a serialized HloModuleProto.
        options: A serialized CompileOptionsProto.
        optimized: Where the compiler's optimized module is written.
    """

    module: pathlib.Path
    options: pathlib.Path
    optimized: pathlib.Path


def find_plugin() -> tuple[pathlib.Path, str]:
    """Returns the TPU compiler's library and version.

    Raises:
        UnavailableError: The compiler is not installed.
    """
    spec = importlib.util.find_spec("libtpu")
    for folder in (spec and spec.submodule_search_locations) or []:
        library = pathlib.Path(folder, "libtpu.so")
        if library.exists():
            return library, importlib.metadata.version("libtpu")
    raise UnavailableError(f"the TPU compiler is not installed. Run: {INSTALL}")


class Compiler:
    """Asks the TPU compiler. Not thread-safe."""

    def __init__(self, plugin: pathlib.Path, libraries: list[str], limit_seconds: float) -> None:
        """Starts nothing yet.

        Args:
            plugin: The TPU compiler.
            libraries: The TensorFlow libraries that ours needs, followed by ours.
            limit_seconds: How long an answer may take.
        """
        self._plugin = plugin
        self._libraries = libraries
        self._limit = limit_seconds
        self._worker: subprocess.Popen[str] | None = None
        # The process's output; open as long as it runs.
        self._log: IO[str] | None = None

    def ask(self, topology: str, chip_config: str, files: Files) -> dict[str, Any]:
        """Returns the compiler's answer.

        Raises:
            UnavailableError: There is no answer: the compiler has crashed or took too long.
        """
        worker = self._worker = self._running()
        assert worker.stdin is not None
        assert worker.stdout is not None
        question = [
            *(self._plugin, topology, chip_config),
            *(files.module, files.options, files.optimized),
        ]
        late = threading.Event()

        def stop() -> None:
            late.set()
            worker.kill()

        timer = threading.Timer(self._limit, stop)
        timer.start()
        try:
            worker.stdin.write(json.dumps([str(part) for part in question]) + "\n")
            worker.stdin.flush()
            answer = worker.stdout.readline()
        except BrokenPipeError:
            answer = ""
        finally:
            timer.cancel()
        if answer:
            return dict(json.loads(answer))
        code = worker.wait()
        last = self._last()
        self.close()
        if late.is_set():
            raise UnavailableError(
                f"the TPU compiler did not answer within {self._limit:g} s and was stopped"
            )
        raise UnavailableError(f"the TPU compiler has crashed (exit code {code}){last}")

    def close(self) -> None:
        """Ends the compiler's process."""
        worker, self._worker = self._worker, None
        log, self._log = self._log, None
        if log is not None:
            log.close()
        if worker is None:
            return
        worker.kill()
        worker.wait()
        for pipe in (worker.stdin, worker.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _running(self) -> subprocess.Popen[str]:
        if self._worker is not None and self._worker.poll() is None:
            return self._worker
        self.close()
        self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        return subprocess.Popen(
            # Isolated, because nothing of the user's belongs there.
            [sys.executable, "-I", "-S", str(_WORKER), *self._libraries],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, **_ENVIRONMENT},
            # Ctrl-C is for the script.
            start_new_session=True,
        )

    def _last(self) -> str:
        """Returns the last line that the process has printed, for an error message."""
        assert self._log is not None
        self._log.seek(0)
        lines = [line.strip() for line in self._log if line.strip()]
        return f": {lines[-1][:300]}" if lines else ""
