"""Sessions on other processes: no call waits forever for a worker that has stopped."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tf_tpu_ext import _machine, _watched_calls, _workers

_PREFIX = "grpc://"
# Names a worker whose task is not in the session's cluster.
_UNNAMED = "The worker"
_log = logging.getLogger("tf_tpu_ext")
_lost = functools.partial(
    _workers.lost, advice="When it is back, make another session and restore a checkpoint."
)


class SessionWatch:
    """Watches the worker that a session talks to; the workers watch each other.

    If a connection breaks, both that worker and TensorFlow in this process repeat their requests,
    so only a call on a thread of its own can be abandoned.
    """

    def __init__(self, task: str, address: str) -> None:
        """Watches only the calls.

        Args:
            task: The full name of the worker's task.
            address: Where it listens, `host:port`.
        """
        self._task = task
        self._address = address

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls a function that talks to the worker.

        Nested calls through this method run directly.

        Raises:
            tf.errors.UnavailableError: The worker gives no sign of life within
                `host_limit_seconds`. The call is abandoned.
        """
        return _watched_calls.watched(
            functools.partial(function, *args, **kwargs), {self._task: self._address}, _lost
        )

    def lost(self, why: str) -> Exception:
        """Returns the error of a worker that has given no sign of life within the limit."""
        return _lost(self._task, self._address, why)

    def close(self, function: Callable[..., Any], *args: Any) -> None:
        """Calls a function that ends the session; waits at most `host_limit_seconds` for it."""
        call = _watched_calls.Call(functools.partial(function, *args))
        limit = _machine.machine().host_limit_seconds
        if call.ended.wait(limit):
            call.result()
        else:
            _log.warning(
                "The session of %s was not closed within %g s: one of its workers is lost.",
                self._address,
                limit,
            )


def watch(target: Any, config: Any) -> SessionWatch | None:
    """Watches the worker of a session that is about to be created.

    If this worker belongs to the session's cluster and has cores, the cluster's other workers are
    watched too, and every worker is told the addresses of all.

    Args:
        target: What the session connects to.
        config: Its `tf.compat.v1.ConfigProto`, or None.

    Returns:
        The watch that the session's calls go through, or None if the session runs in this process.

    Raises:
        tf.errors.UnavailableError: A worker of the cluster gives no sign of life within
            `host_limit_seconds`. TensorFlow would wait for it forever.
    """
    import tensorflow as tf

    if not isinstance(target, str) or not target.startswith(_PREFIX):
        return None
    master = target.removeprefix(_PREFIX)
    if _workers.asking.now:
        return SessionWatch(_UNNAMED, master)
    cluster = tf.train.ClusterSpec({} if config is None else config.cluster_def)
    addresses = _workers.addresses_of(cluster)
    named = next((task for task, address in addresses.items() if address == master), _UNNAMED)
    if named in addresses:
        _introduce(named, addresses)
    _workers.note(named, master)
    return SessionWatch(named, master)


def _introduce(master: str, addresses: Mapping[str, str]) -> None:
    deadline = time.monotonic() + _machine.machine().host_limit_seconds
    _workers.wait_for(master, addresses[master], deadline)
    if not _has_cores(addresses[master]):
        return
    for task, address in addresses.items():
        _workers.wait_for(task, address, deadline)
        _workers.note(task, address)
    for address in addresses.values():
        _note_hosts(address, addresses)


def _has_cores(address: str) -> bool:
    """Returns whether a worker belongs to a pod: TensorFlow's own servers lack the op."""
    import tensorflow as tf

    try:
        _note_hosts(address, {})
    except tf.errors.NotFoundError:
        return False
    return True


def _note_hosts(address: str, hosts: Mapping[str, str]) -> None:
    """Tells a worker where the others listen."""
    attributes = {"tasks": _texts(hosts), "addresses": _texts(hosts.values())}
    _workers.run_on(address, "TpuExt>NoteHosts", attributes)


def _texts(values: Iterable[str]) -> Any:
    from tensorflow.core.framework import attr_value_pb2

    encoded = [value.encode() for value in values]
    return attr_value_pb2.AttrValue(list=attr_value_pb2.AttrValue.ListValue(s=encoded))
