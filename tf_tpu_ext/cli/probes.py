"""The checks that `tf-tpu doctor` runs in separate processes.

They are run as `python probes.py PROBE FOLDER`; the probe of workers also takes their addresses.
FOLDER contains the tf_tpu_ext to check. Each result is printed immediately, as one line of JSON, so
that a crash does not lose it.
"""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

# How many steps and calls are timed.
_STEPS = 20
# The method that TensorFlow's own health checks call on a worker.
_GET_STATUS = "/tensorflow.WorkerService/GetStatus"
# A clock that is off by more than this confuses people who read the logs of several workers.
_CLOCK_SECONDS = 1.0


def report(name: str, status: str, found: str, advice: str = "") -> None:
    """Prints the result of a check; see `doctor.Check`."""
    print(
        json.dumps({"name": name, "status": status, "found": found, "advice": advice}), flush=True
    )


def attempt(name: str, action: Callable[[], str], advice: str) -> bool:
    """Runs a check that fails if the action raises an error."""
    try:
        found = action()
    except Exception as error:
        report(name, "failed", f"{type(error).__name__}: {error}", advice)
        return False
    report(name, "ok", found)
    return True


def probe_machine() -> None:
    """Loads the library, checks the machine and runs steps on all its cores."""
    try:
        import tf_tpu_ext
        from tf_tpu_ext import _native
    except Exception as error:
        # These errors say what to do.
        report("library", "failed", f"{type(error).__name__}: {error}", _advice_for(error))
        return
    if _native.stepped_aside():
        report(
            "library",
            "note",
            "not loaded: the package leaves the TPU to TensorFlow",
        )
        return
    file = _native.library_file()
    assert file is not None
    own = file.path.is_relative_to(pathlib.Path(tf_tpu_ext.__file__).resolve().parent)
    place = "" if own else f" from {file.path.parent}"
    report("library", "ok", f"loaded{place}; built for TensorFlow {file.version}")
    machine = tf_tpu_ext.machine()
    if not attempt("devices", lambda: _devices(machine), "Import tf_tpu_ext before all else."):
        return
    see = "See docs/troubleshooting.md; run `tf-tpu doctor --json` to report it."
    attempt("tf.compat.v1.tpu step", lambda: _graph_step(machine.cores), see)
    attempt("TPUStrategy step", lambda: _strategy_step(machine.cores), see)
    attempt("threads", _threads, see)


def _advice_for(error: Exception) -> str:
    if isinstance(error, ValueError):
        return "Set the environment variables TF_TPU_EXT_* to values in range, or unset them."
    if isinstance(error, (ImportError, RuntimeError)):
        return "Do what the message says, then run `tf-tpu doctor` again."
    return "The library is of another version than the Python files: build or install both again."


def _devices(machine: Any) -> str:
    import tensorflow as tf

    names = [device.name for device in tf.config.list_logical_devices("TPU")]
    if len(names) != machine.cores:
        raise RuntimeError(f"expected {machine.cores} TPU devices, found {names}")
    mesh = " x ".join(str(extent) for extent in machine.mesh_shape)
    return (
        f"{machine.cores} cores, {names[0]} to {names[-1]}; mesh {mesh}; "
        f"waits end after {machine.wait_limit_seconds:g} s"
    )


def _expect(values: list[float], cores: int) -> None:
    expected = float(sum(range(1, cores + 1)))
    if values != [expected] * cores:
        raise RuntimeError(
            f"the sum of 1 to {cores} over all cores must be {expected} on each; got {values}"
        )


def _graph_step(cores: int) -> str:
    import tensorflow as tf

    start = time.monotonic()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        session.run(tf.compat.v1.tpu.initialize_system())
        sums = tf.compat.v1.tpu.replicate(
            lambda x: tf.compat.v1.tpu.cross_replica_sum(x),
            [[tf.constant(core + 1.0)] for core in range(cores)],
        )
        values = [float(value) for (value,) in session.run(sums)]
        session.run(tf.compat.v1.tpu.shutdown_system())
    _expect(values, cores)
    return f"an all-reduce over {cores} cores is right ({time.monotonic() - start:.1f} s)"


def _strategy_step(cores: int, resolver: Any = None) -> str:
    import tensorflow as tf

    start = time.monotonic()
    resolver = resolver or tf.distribute.cluster_resolver.TPUClusterResolver()
    tf.tpu.experimental.initialize_tpu_system(resolver)
    strategy = tf.distribute.TPUStrategy(resolver)

    @tf.function
    def step() -> Any:
        def replica() -> Any:
            context = tf.distribute.get_replica_context()
            number = tf.cast(context.replica_id_in_sync_group, tf.float32) + 1.0
            return context.all_reduce(tf.distribute.ReduceOp.SUM, number)

        return strategy.experimental_local_results(strategy.run(replica))

    _expect([float(value) for value in step()], cores)
    first = time.monotonic() - start
    start = time.monotonic()
    for _ in range(_STEPS):
        values = step()
    _expect([float(value) for value in values], cores)
    each = (time.monotonic() - start) / _STEPS
    return (
        f"an all-reduce over {cores} cores is right ({first:.1f} s, then {each * 1e3:.1f} ms each)"
    )


def _threads() -> str:
    from tf_tpu_ext import _native

    compute = _native.library().TfTpuExt_ComputeThreads()
    running = len(list(pathlib.Path("/proc/self/task").iterdir()))
    return (
        f"{len(os.sched_getaffinity(0))} of {os.cpu_count()} processors, {compute} compute "
        "threads; the process has "
        f"{running} threads with those of TensorFlow"
    )


def probe_workers(master: str) -> None:
    """Examines each worker by itself, and then a step on the cores of all workers."""
    import tensorflow as tf

    from tf_tpu_ext import _workers

    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(master)
    workers = [
        _Worker(task, address)
        for task, address in _workers.addresses_of(resolver.cluster_spec()).items()
    ]
    start = "Start it: tf-tpu worker --listen ADDRESS --port PORT."
    healthy = [attempt(worker.address, worker.answer, start) for worker in workers]
    if not all(healthy):
        return
    tf.config.experimental_connect_to_cluster(resolver)
    for worker in workers:
        attempt(worker.address, worker.describe, "Give all workers, and this process, the same.")
    see = "See docs/pods.md; run `tf-tpu doctor --json` with these workers to report it."
    cores = len(tf.config.list_logical_devices("TPU"))
    attempt("TPUStrategy step", lambda: _strategy_step(cores, resolver), see)


def _ask(address: str, timeout: float) -> None:
    import grpc

    with grpc.insecure_channel(address) as channel:
        try:
            # An empty request, as serialized.
            channel.unary_unary(_GET_STATUS)(b"", timeout=timeout)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                raise TimeoutError(f"no answer from {address} within {timeout:g} s") from error
            raise ConnectionError(f"no worker at {address}: {error.details()}") from error


class _Worker:
    """A worker of the cluster."""

    def __init__(self, task: str, address: str) -> None:
        self.task = task
        self.address = address

    def answer(self) -> str:
        """Returns how fast the worker answers."""
        took = []
        for _ in range(_STEPS):
            start = time.monotonic()
            _ask(self.address, timeout=10)
            took.append(time.monotonic() - start)
        return f"answers in {min(took) * 1e3:.1f} ms"

    def describe(self) -> str:
        """Describes the worker, or raises RuntimeError if it does not match this process."""
        import tensorflow as tf

        from tf_tpu_ext import _version, _workers

        before = time.time()
        found = _workers.describe(self.address)
        after = time.time()
        # The worker has read its clock at some moment in between.
        off = max(found["seconds"] - after, before - found["seconds"], 0.0)
        said = (
            f"{self.task}: {found['cores']} cores, tf_tpu_ext {found['tf_tpu_ext']}, TensorFlow "
            f"{found['tensorflow']}, clock within {max(off, after - before) * 1e3:.1f} ms of ours"
        )
        wanted = {"tf_tpu_ext": _version.VERSION, "tensorflow": tf.__version__}
        for name, version in wanted.items():
            if found[name] != version:
                raise RuntimeError(f"{said}; here is {name} {version}")
        if off > _CLOCK_SECONDS:
            raise RuntimeError(said)
        return said


def probe_tensorflow_io() -> None:
    """Calls a native op of tensorflow-io."""
    import tensorflow as tf

    pairs = "Native ops of tensorflow-io 0.37.1 load on TensorFlow 2.16 and 2.17 only."
    try:
        tfio = importlib.import_module("tensorflow_io")
    except Exception as error:
        report("tensorflow-io", "failed", f"can't be imported: {error}", pairs)
        return
    try:
        matches, _ = tfio.experimental.text.re2_full_match(["tpu"], "(t)(.*)")
        works = bool(matches.numpy().all())
    except Exception as error:
        report(
            "tensorflow-io",
            "failed",
            f"imports, but its native ops don't load on TensorFlow {tf.__version__}: "
            f"{type(error).__name__}: {str(error)[:300]}",
            f"{pairs} Its Python parts work.",
        )
        return
    if works:
        report("tensorflow-io", "ok", f"a native op runs on TensorFlow {tf.__version__}")
    else:
        report("tensorflow-io", "failed", "a native op gave a wrong result", pairs)


def main() -> None:
    """Runs the probe given on the command line."""
    probe, folder, *arguments = sys.argv[1:]
    # Python puts this file's folder first in sys.path, unless PYTHONSAFEPATH is set. Its modules
    # must not be importable by their short names.
    own = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder, *(path for path in sys.path if os.path.abspath(path) != own)]
    probes: dict[str, Callable[..., None]] = {
        "machine": probe_machine,
        "tensorflow_io": probe_tensorflow_io,
        "workers": probe_workers,
    }
    probes[probe](*arguments)
    print(json.dumps({"finished": True}), flush=True)


if __name__ == "__main__":
    main()
