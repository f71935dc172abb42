"""Ends waits for a worker that has stopped without closing its connections.

TensorFlow's calls of a remote worker have no time limit. A worker that was stopped, or a host that
the network has lost, would let its client wait for ever.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

import grpc

from tf_tpu_ext import _machine, _native

# What TensorFlow's own health checks ask.
_GET_STATUS = "/tensorflow.WorkerService/GetStatus"

_log = logging.getLogger("tf_tpu_ext")


def ask(address: str, timeout: float) -> None:
    """Asks a worker for a sign of life.

    Args:
        address: Where it listens, `host:port`.
        timeout: How many seconds it may take.

    Raises:
        TimeoutError: It took longer.
        ConnectionError: There is no worker.
    """
    with grpc.insecure_channel(address) as channel:
        try:
            # An empty request, in the form in which it is sent.
            channel.unary_unary(_GET_STATUS)(b"", timeout=timeout)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                raise TimeoutError(f"no answer from {address} within {timeout:g} s") from error
            raise ConnectionError(f"no worker at {address}: {error.details()}") from error


class _Watch(threading.Thread):
    """Asks workers for signs of life, and cuts the connections to those that give none."""

    def __init__(self, addresses: dict[str, str]) -> None:
        super().__init__(name="tf_tpu_ext_workers", daemon=True)
        self._addresses = addresses
        self._ended = threading.Event()

    def end(self) -> None:
        self._ended.set()

    def run(self) -> None:
        while not self._ended.wait(_machine.machine().host_limit_seconds / 2):
            for task, address in self._addresses.items():
                if not self._answers(address):
                    _log.warning("%s at %s has given no sign of life", task, address)
                    _native.library().TfTpuExt_CutConnections(address.encode())

    def _answers(self, address: str) -> bool:
        try:
            ask(address, _machine.machine().host_limit_seconds / 2)
        except TimeoutError:
            return False
        except ConnectionError as error:
            # Connections to one that has ended, or can't be reached, end by themselves.
            _log.debug("%s: %s", address, error)
        return True


_watch: _Watch | None = None


def addresses_of(cluster: Any) -> dict[str, str]:
    """Returns the address of each task of a `tf.train.ClusterSpec`, by the task's full name."""
    return {
        f"/job:{job}/replica:0/task:{task}": cluster.task_address(job, task)
        for job in cluster.jobs
        for task in cluster.task_indices(job)
    }


def connected(cluster: Any) -> None:
    """Begins to watch the workers of a cluster, and tells them where the others are.

    Args:
        cluster: A `tf.train.ClusterSpec` that TensorFlow's context has just connected to.
    """
    global _watch
    if _watch is not None:
        _watch.end()
    addresses = addresses_of(cluster)
    if len(addresses) > 1:
        _tell_workers(addresses)
    _watch = _Watch(addresses)
    _watch.start()


def _tell_workers(addresses: dict[str, str]) -> None:
    import tensorflow as tf
    from tensorflow.python.eager import context, execute

    attributes = ("tasks", list(addresses), "addresses", list(addresses.values()))
    for task in addresses:
        with tf.device(f"{task}/device:CPU:0"):
            execute.execute(b"TpuExt>NoteHosts", 0, [], attributes, context.context())
