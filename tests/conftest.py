"""What every test relies on: virtual cores before the first op, and fresh processes."""

from __future__ import annotations

import gc
import os
import pathlib
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
# Tests compile what they test, and leave nothing in the user's cache.
os.environ["TF_TPU_EXT_COMPILATION_CACHE"] = ""

# A shell lets what it starts in the background ignore Ctrl-C, which some tests send.
signal.signal(signal.SIGINT, signal.default_int_handler)

if not (ROOT / "tf_tpu_ext" / "libtf_tpu_ext_ops.so").exists():
    # `python -m pytest` puts the checkout first, but it is the installed package that was built.
    sys.path[:] = [path for path in sys.path if pathlib.Path(path).resolve() != ROOT]
    os.environ["PYTHONSAFEPATH"] = "1"

# TensorFlow makes its devices at the first op of any test: ours must be registered by then.
import imported_processes  # noqa: E402

import tf_tpu_ext  # noqa: E402
from tf_tpu_ext import patches  # noqa: E402
from tf_tpu_ext.io import _environment  # noqa: E402

# Processes that tests start take the same package.
_PACKAGES = str(pathlib.Path(tf_tpu_ext.__file__).parent.parent)
_PYTHONPATH = os.environ.get("PYTHONPATH")
os.environ["PYTHONPATH"] = f"{_PACKAGES}{os.pathsep}{_PYTHONPATH}" if _PYTHONPATH else _PACKAGES

RunPython = Callable[..., "subprocess.CompletedProcess[str]"]


def pytest_collection_finish() -> None:
    """Makes garbage collections rare, which otherwise take a quarter of the tests' time."""
    # What the imports of all tests have left stays.
    gc.freeze()
    gc.set_threshold(10_000, 20, 10)


@pytest.fixture(scope="session")
def make_strategy() -> Callable[[int], Any]:
    """Makes a TPUStrategy of a number of replicas, of one core each, on a new TPU system."""
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


@pytest.fixture
def set_soft_placement() -> Iterator[Callable[[bool], None]]:
    """Sets soft device placement for one test."""
    import tensorflow as tf
    from tensorflow.python.eager import context

    eager = context.context()
    before = eager._soft_device_placement
    yield tf.config.set_soft_device_placement
    tf.config.set_soft_device_placement(True)
    # None is neither True nor False: it depends on what asks.
    eager._soft_device_placement = before


@pytest.fixture(params=[True, False], ids=["host", "cores"])
def from_host(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether programs are started from the host."""
    tf_tpu_ext.configure(launch_from_host=request.param)
    yield request.param
    tf_tpu_ext.configure(launch_from_host=True)


@pytest.fixture
def tensorflow_patches() -> Iterator[None]:
    """The patches of TensorFlow itself are in force, and no others; afterwards those of before."""
    applied = set(patches.applied())
    # A dictionary keeps their order.
    groups = {patch.group: None for patch in patches.PATCHES if patch.name in applied}
    patches.undo_all()
    patches.apply()
    yield
    patches.undo_all()
    for group in groups:
        patches.apply(group)


@pytest.fixture(scope="session")
def program_devices() -> Callable[..., set[str]]:
    """Runs a function that was not traced before; the device types that have a part of a step."""
    import tensorflow as tf
    from tensorflow.python.eager import context

    def run(function: Callable[..., Any], *arguments: Any) -> set[str]:
        context.context().enable_run_metadata()
        try:
            context.context().export_run_metadata()  # forgets what ran before
            function(*arguments)
            graphs = context.context().export_run_metadata().function_graphs
        finally:
            context.context().disable_run_metadata()
        devices = set()
        for graph in graphs:
            nodes = [node for part in graph.partition_graphs for node in part.node]
            if any(node.op.startswith("TPUExecute") for node in nodes):
                devices |= {tf.DeviceSpec.from_string(node.device).device_type for node in nodes}
        return devices

    return run


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


@pytest.fixture(scope="session")
def io_environment() -> Iterator[pathlib.Path]:
    """The environment: the user's, or one that is made once and kept in a cache folder."""
    python = _environment.find()
    with pytest.MonkeyPatch.context() as patch:
        if python is None:
            cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
            patch.setenv(_environment.FOLDER_VARIABLE, f"{cache}/tf_tpu_ext/io")
            python = _environment.find()
        if python is None:
            try:
                python = _environment.make(None, print)
            except _environment.SetupError as error:
                pytest.skip(f"no environment with tensorflow-io can be made: {error}")
        yield python


@pytest.fixture(scope="session")
def run_python() -> RunPython:
    """Runs Python code in a process of its own, for what can be done only once in a process.

    The process has imported TensorFlow, and done nothing with it, unless `interpreter` asks for
    one that has imported nothing.
    """

    def run(
        code: str,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        timeout: float = 120,
        check: bool = True,
        interpreter: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        command = ["-c", textwrap.dedent(code), *arguments]
        environment = {**os.environ, **(env or {})}
        if interpreter:
            done = subprocess.run(
                [*imported_processes.PYTHON, *command],
                env=environment,
                capture_output=True,
                text=True,
                timeout=timeout,
                cwd=imported_processes.FOLDER,
            )
        else:
            done = imported_processes.run(command, env=environment, timeout=timeout)
        if check:
            assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    return run


@pytest.fixture(scope="session", autouse=True)
def end_imported_processes() -> Iterator[None]:
    """Leaves no process that a test has started."""
    yield
    imported_processes.close()
