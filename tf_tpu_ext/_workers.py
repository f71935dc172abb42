"""The workers whose cores this program uses."""

from __future__ import annotations

import contextlib
import ctypes
import json
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from tf_tpu_ext import _machine, _native

# The addresses of the workers whose cores this program uses, as far as it has named them.
known: list[str] = []

# The addresses of the workers that are watched, by the full name of their task.
_watched: dict[str, str] = {}


class _Asking(threading.local):
    """Whether this thread creates a session for one question that concerns no other worker."""

    now = False


asking = _Asking()

# How long to wait for an answer, and how long to pause before asking again.
_CHECK_SECONDS, _PAUSE_SECONDS = 2.0, 0.1

# In the message of each error that names a lost worker. TensorFlow may make another error of it.
_SILENT = "no sign of life"
_ADVICE = "When it is back, connect to the workers again and restore a checkpoint."


def addresses_of(cluster: Any) -> dict[str, str]:
    """Returns the address of each task of a `tf.train.ClusterSpec`, by the task's full name."""
    return {
        f"/job:{job}/replica:0/task:{task}": cluster.task_address(job, task)
        for job in cluster.jobs
        for task in cluster.task_indices(job)
    }


@contextlib.contextmanager
def connecting(cluster: Any) -> Iterator[None]:
    """Watches the workers of a cluster from now on, and finally lets them find each other.

    Args:
        cluster: A `tf.train.ClusterSpec`, to which TensorFlow's context connects in the body.

    Raises:
        tf.errors.UnavailableError: A worker gives no sign of life within `host_limit_seconds`
            (TensorFlow would wait for it forever), or the workers can't reach each other.
    """
    addresses = addresses_of(cluster)
    deadline = time.monotonic() + _machine.machine().host_limit_seconds
    for task, address in addresses.items():
        wait_for(task, address, deadline)
        note(task, address)
    yield
    known[:] = dict.fromkeys([*known, *addresses.values()])
    if len(addresses) > 1:
        _tell_workers(addresses)
        _introduce(list(addresses), deadline)


def note(task: str, address: str) -> None:
    """Watches a worker from now on: without a sign of life, its connections are closed."""
    _watched[task] = address
    _native.library().TfTpuExt_NoteHost(task.encode(), address.encode())


def with_lost_ones(message: str) -> str:
    """Adds the watched workers that give no sign of life to the message of an UnavailableError.

    TensorFlow's own messages may say no more than that a connection was closed, or name the worker
    that tells of the loss.
    """
    if _SILENT in message:
        return message
    lost_ones = []
    for task, address in _watched.items():
        start = time.monotonic()
        why = why_silent(address, _CHECK_SECONDS)
        if why is not None:
            lost_ones.append(f"{task} at {address} gives {_SILENT}: {why}.")
        # Those that have stopped take their time: one is enough to say.
        if time.monotonic() - start >= _CHECK_SECONDS:
            break
    if not lost_ones:
        return message
    return " ".join([message, *lost_ones, _ADVICE])


def wait_for(task: str, address: str, deadline: float) -> None:
    """Waits until a worker gives a sign of life.

    Raises:
        tf.errors.UnavailableError: It gives none before `time.monotonic()` reaches the deadline.
    """
    while True:
        # Not the whole time in one call, because Ctrl-C would wait for it.
        why = why_silent(address, max(0.1, min(_CHECK_SECONDS, deadline - time.monotonic())))
        if why is None:
            return
        if time.monotonic() >= deadline:
            raise lost(task, address, why)
        time.sleep(_PAUSE_SECONDS)


def lost(
    task: str,
    address: str,
    why: str,
    advice: str = "Start it with tf-tpu worker, or name another address.",
) -> Exception:
    """Returns the error of a worker that has given no sign of life within the limit."""
    import tensorflow as tf

    error: Exception = tf.errors.UnavailableError(
        None,
        None,
        f"{task} at {address} has given {_SILENT} for "
        f"{_machine.machine().host_limit_seconds:g} s: {why}. {advice} "
        "tf_tpu_ext.configure(host_limit_seconds=...), or TF_TPU_EXT_HOST_LIMIT_SECONDS, sets how "
        "long to wait for it.",
    )
    return error


def why_silent(address: str, seconds: float) -> str | None:
    """Waits for a sign of life. Returns None if there is one, or else the reason."""
    return _native.text_of("TfTpuExt_CheckAlive", address.encode(), ctypes.c_double(seconds))


def _tell_workers(addresses: dict[str, str]) -> None:
    import tensorflow as tf
    from tensorflow.python.eager import context, execute

    attributes = ("tasks", list(addresses), "addresses", list(addresses.values()))
    for task in addresses:
        with tf.device(f"{task}/device:CPU:0"):
            execute.execute(b"TpuExt>NoteHosts", 0, [], attributes, context.context())


def _introduce(tasks: list[str], deadline: float) -> None:
    """Waits until each worker can reach all others.

    gRPC refuses calls to a restarted worker for a while, because of the earlier failure.
    """
    import tensorflow as tf

    def meet() -> list[Any]:
        sent = {}
        for task in tasks:
            with tf.device(f"{task}/device:CPU:0"):
                sent[task] = tf.timestamp()
        met = []
        for task in tasks:
            with tf.device(f"{task}/device:CPU:0"):
                met.append(tf.add_n([sent[other] for other in tasks if other != task]))
        return met

    while True:
        try:
            for value in tf.function(meet, autograph=False)():
                value.numpy()
        except tf.errors.UnavailableError as error:
            if time.monotonic() >= deadline:
                raise tf.errors.UnavailableError(
                    None,
                    None,
                    f"The workers don't all reach each other: {error.message} Each must reach the "
                    "others at the addresses that the program names.",
                ) from error
            time.sleep(_PAUSE_SECONDS)
        else:
            return


def describe(address: str) -> dict[str, Any]:
    """Asks a worker for the information from the op `TpuExt>DescribeHost`.

    Args:
        address: Where it listens, `host:port`.

    Raises:
        tf.errors.OpError: There is no worker, or it is lost.
    """
    return _ask(address, "TpuExt>DescribeHost")


def describe_work(address: str) -> dict[str, Any]:
    """Asks a worker for the information from the op `TpuExt>DescribeWork`.

    Args:
        address: Where it listens, `host:port`.

    Raises:
        tf.errors.OpError: There is no worker, or it is lost.
    """
    return _ask(address, "TpuExt>DescribeWork")


def describe_progress(address: str, age_seconds: float) -> dict[str, Any]:
    """Asks a worker for the information from the op `TpuExt>DescribeProgress`.

    Args:
        address: Where it listens, `host:port`.
        age_seconds: Shorter waits are left out.

    Raises:
        tf.errors.OpError: There is no worker, or it is lost.
    """
    from tensorflow.core.framework import attr_value_pb2

    age = attr_value_pb2.AttrValue(f=age_seconds)
    return _ask(address, "TpuExt>DescribeProgress", {"age_seconds": age})


def _ask(address: str, op: str, attributes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    import tensorflow as tf

    why = why_silent(address, _CHECK_SECONDS)
    if why is not None:
        raise tf.errors.UnavailableError(None, None, f"There is no worker at {address}: {why}.")
    found: dict[str, Any] = json.loads(run_on(address, op, attributes or {}, tf.string))
    return found


def run_on(address: str, op: str, attributes: Mapping[str, Any], *types: Any) -> Any:
    """Runs an op without inputs on a worker.

    Args:
        address: Where it listens, `host:port`.
        op: The name of the op.
        attributes: Its attributes, as `AttrValue`.
        *types: The type of its result; empty if it has none.

    Returns:
        The result, or None.

    Raises:
        tf.errors.OpError: The op fails, or the worker is lost.
    """
    import tensorflow as tf

    asking.now = True
    try:
        with tf.Graph().as_default() as graph:
            made = graph.create_op(op, [], types, attrs=attributes)
            with tf.compat.v1.Session(f"grpc://{address}") as session:
                return session.run(made.outputs[0] if types else made)
    finally:
        asking.now = False
