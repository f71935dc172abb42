"""What every test relies on: virtual cores before the first op, and fresh processes."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

if not (ROOT / "tf_tpu_ext" / "libtf_tpu_ext_ops.so").exists():
    # `python -m pytest` puts the checkout first, but it is the installed package that was built.
    sys.path[:] = [path for path in sys.path if pathlib.Path(path).resolve() != ROOT]
    os.environ["PYTHONSAFEPATH"] = "1"

# TensorFlow makes its devices at the first op of any test: ours must be registered by then.
import tf_tpu_ext  # noqa: E402

# Processes that tests start take the same package.
_PACKAGES = str(pathlib.Path(tf_tpu_ext.__file__).parent.parent)
_PYTHONPATH = os.environ.get("PYTHONPATH")
os.environ["PYTHONPATH"] = f"{_PACKAGES}{os.pathsep}{_PYTHONPATH}" if _PYTHONPATH else _PACKAGES

RunPython = Callable[..., "subprocess.CompletedProcess[str]"]
RunPage = Callable[[str, int], str]


@pytest.fixture(scope="session")
def make_strategy() -> Callable[[int], Any]:
    """Makes a TPUStrategy of so many replicas, of one core each, on a new TPU system."""
    import tensorflow as tf

    def make(replicas: int) -> Any:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
        topology = tf.tpu.experimental.initialize_tpu_system(resolver)
        assignment = tf.tpu.experimental.DeviceAssignment.build(topology, num_replicas=replicas)
        return tf.distribute.TPUStrategy(resolver, experimental_device_assignment=assignment)

    return make


@pytest.fixture(scope="module", params=[1, 2, 8])
def strategy(request: pytest.FixtureRequest, make_strategy: Callable[[int], Any]) -> Any:
    """A strategy of one, two and eight replicas; most files have one of all cores instead."""
    return make_strategy(request.param)


@pytest.fixture(scope="session")
def run_tests_on_other_cores() -> Callable[..., None]:
    """Runs test files on one, two and eight cores, leaving out the number of this process."""

    def run(present: int, files: Iterable[pathlib.Path], *options: str) -> None:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
        command += map(str, files)

        def run_on(cores: int) -> None:
            env = {**os.environ, "TF_TPU_EXT_CORES": str(cores)}
            done = subprocess.run(
                command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=840
            )
            assert done.returncode == 0, f"on {cores} cores:\n{done.stdout}{done.stderr}"

        with ThreadPoolExecutor() as threads:
            list(threads.map(run_on, {1, 2, 8} - {present}))

    return run


# Imports TensorFlow once; runs every request in a copy of the process as it was then. The import
# leaves no threads but OpenBLAS's, which knows how to be copied. What is frozen, the garbage
# collector of a copy does not look at, which would copy its memory.
_SERVER = """
def requested():
    import gc, json, os, signal, sys
    import tensorflow
    gc.freeze()
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
_PYTHON = [sys.executable, "-X", "faulthandler", "-c"]
# Python puts the working folder first, see above.
_FOLDER = ROOT / "tests"


class _Processes:
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
        return subprocess.CompletedProcess([*_PYTHON, code, *arguments], status, stdout, stderr)

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
                [*_PYTHON, _SERVER],
                env=read_at_import,
                cwd=_FOLDER,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        return self._servers[key]


@pytest.fixture(scope="session")
def run_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunPython]:
    """Runs Python code in a process of its own, for what can be done only once in a process.

    The process has imported TensorFlow, and done nothing with it, unless `interpreter` asks for
    one that has imported nothing.
    """
    processes = _Processes()

    def run(
        code: str,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        timeout: float = 120,
        check: bool = True,
        interpreter: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        code = textwrap.dedent(code)
        environment = {**os.environ, **(env or {})}
        if interpreter:
            done = subprocess.run(
                [*_PYTHON, code, *arguments],
                env=environment,
                capture_output=True,
                text=True,
                timeout=timeout,
                cwd=_FOLDER,
            )
        else:
            folder = tmp_path_factory.mktemp("process")
            done = processes.run(code, arguments, environment, timeout, folder)
        if check:
            assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    yield run
    processes.close()


@pytest.fixture
def run_page(run_python: RunPython, tmp_path: pathlib.Path) -> RunPage:
    """Runs the example of docs/PAGE.md on so many cores; returns what it prints."""

    def run(page: str, cores: int) -> str:
        [code] = re.findall(
            rf"<!-- {page}: example -->\n```python\n(.*?)```",
            (ROOT / "docs" / f"{page}.md").read_text(),
            re.DOTALL,
        )
        # Autograph reads the source of functions.
        program = tmp_path / "program.py"
        program.write_text(code)
        as_main = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"
        return run_python(as_main, str(program), env={"TF_TPU_EXT_CORES": str(cores)}).stdout

    return run
