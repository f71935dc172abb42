"""Patches that make TPUClusterResolver find the virtual cores."""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tf_tpu_ext import _machine, _own_server, _watched_calls, _workers
from tf_tpu_ext._tpu_client import VirtualTpuClient
from tf_tpu_ext.patches import _device_names
from tf_tpu_ext.patches._changes import Changes, find

# TensorFlow's functions that connect to workers.
_SET_SERVER_DEF = ("TFE_ContextSetServerDef", "TFE_ContextSetServerDefWithTimeoutAndRetries")
# A cloud sets one of these to tell the program which TPU to use.
_CLOUD_VARIABLES = ("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_CONFIG", "TPU_API_DISCOVERY_URL")

# With streaming, TensorFlow waits without end for a worker that has stopped: not even the end of
# the connection is an error for it.
STREAMING_VARIABLE = "TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE"

# The job of a resolver whose caller gives none, and so needs none in its graphs.
_DEFAULT_JOB = "worker"
# The address of a task that no session connects to: the conventional port of a TPU's host.
_NOBODY = "localhost:8470"

_log = logging.getLogger("tf_tpu_ext")
# What every TPU is, whatever the program calls it; None if it decides.
_every_tpu: str | None = None


def take_every_tpu_as(master: str) -> None:
    """Makes every name or address of a TPU, even from a cloud's environment, the given one.

    Used by the launcher, because a script that it runs has no other TPU.

    Args:
        master: `"local"` for the virtual cores of this process, else the addresses of workers.
    """
    global _every_tpu
    _every_tpu = master
    if master != "local":
        _give_up_own_cores(master)


def _name_of_tpu(tpu: Any) -> Any:
    """Returns the TPU name in the arguments of a TPUClusterResolver, or in the environment."""
    if isinstance(tpu, (list, tuple)) and len(tpu) == 1:
        tpu = tpu[0]
    if isinstance(tpu, bytes):
        tpu = tpu.decode()
    return os.environ.get("TPU_NAME", "") if tpu is None or tpu == "" else tpu


def _names_this_machine(tpu: Any, service: Any, discovery_url: Any) -> bool:
    """Returns whether the arguments of a TPUClusterResolver mean the virtual cores.

    They do unless they lead to another machine (by an address, the caller's own Cloud API, or a
    cloud's environment), or are invalid, in which case TensorFlow raises its own error.
    """
    name = _name_of_tpu(tpu)
    if "local" in (name, _every_tpu):
        return True
    if service is not None or discovery_url is not None:
        return False
    if any(os.environ.get(variable) for variable in _CLOUD_VARIABLES):
        return False
    # A name has neither; 'grpc://host:port' and 'host:port' do.
    return isinstance(name, str) and "/" not in name and ":" not in name


def install_cluster_resolver(changes: Changes) -> None:
    import tensorflow as tf

    def init_of(stock: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(stock)

        def init(*args: Any, **kwargs: Any) -> None:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError:
                # Raises TensorFlow's own error, which names its own function.
                stock(*args, **kwargs)
                raise
            bound.apply_defaults()
            given = bound.arguments
            if _every_tpu not in (None, "local"):
                given.update(tpu=_every_tpu, service=None, discovery_url=None)
            tpu = given["tpu"]
            if not _names_this_machine(tpu, given["service"], given["discovery_url"]):
                stock(*bound.args, **bound.kwargs)
                return
            _log.debug("TPU %r is the virtual cores of this machine", tpu)
            given["tpu"] = "local"
            if not given["coordinator_address"]:
                # Only a remote TPU has a coordinator. TensorFlow can't create a local one.
                given["coordinator_name"] = None
            stock(*bound.args, **bound.kwargs)
            name = str(_name_of_tpu(tpu) or "local")
            job = given["job_name"]
            given["self"]._cloud_tpu_client = VirtualTpuClient(
                name, None if name == "local" or job == _DEFAULT_JOB else job
            )

        return init

    def cluster_spec_of(stock: Callable[..., Any]) -> Callable[..., Any]:
        def cluster_spec(self: Any) -> Any:
            job = _job_of(self)
            if job is None:
                return stock(self)
            address = self.master().removeprefix("grpc://") or _NOBODY
            return tf.train.ClusterSpec({job: [address]})

        return cluster_spec

    def master_of(stock: Callable[..., str]) -> Callable[..., str]:
        def master(
            self: Any, task_type: Any = None, task_id: Any = None, rpc_layer: Any = None
        ) -> str:
            job = _job_of(self)
            # Eager execution has its own devices, which are those of no server.
            if job is None or tf.executing_eagerly():
                return stock(self, task_type, task_id, rpc_layer)
            return _own_server.target()

        return master

    resolver = tf.distribute.cluster_resolver.TPUClusterResolver
    changes.wrap(resolver, "cluster_spec", cluster_spec_of)
    changes.wrap(resolver, "master", master_of)

    changes.wrap(
        resolver,
        "__init__",
        init_of,
        uses=(
            *("self", "tpu", "job_name", "service", "discovery_url"),
            *("coordinator_name", "coordinator_address"),
        ),
    )


def _job_of(resolver: Any) -> str | None:
    """Returns the job that the caller gave a named TPU which is the virtual cores, or None."""
    client = resolver._cloud_tpu_client
    return client.job if isinstance(client, VirtualTpuClient) else None


def _give_up_own_cores(master: str) -> None:
    """Leaves a client of a remote TPU without virtual cores, which TensorFlow would mix up."""
    if not _machine.machine().local_devices:
        return
    try:
        _machine.configure(local_devices=False)
    except RuntimeError as error:
        raise RuntimeError(
            f"This program connects to the TPU at {master}, but TensorFlow has already made the "
            "virtual cores of its own process, at its first operation. Connect before that, or "
            "call tf_tpu_ext.configure(local_devices=False) at the start of the program."
        ) from error


def _forget_lost_workers() -> None:
    """Makes TensorFlow connect anew if a worker has been started again, or was cut off.

    It would tell the other workers to go on, which then abort: they have what that one has lost.
    """
    import tensorflow as tf
    from tensorflow.python.eager import context

    server = context.get_server_def()
    if server is None:
        return
    own = f"/job:{server.job_name}/replica:0/task:{server.task_index}"
    tasks = _workers.addresses_of(tf.train.ClusterSpec(server.cluster)).keys() - {own}
    if not all(_goes_on(task) for task in tasks):
        context.context()._server_def = None


def _goes_on(task: str) -> bool:
    import tensorflow as tf

    try:
        with tf.device(f"{task}/device:CPU:0"):
            tf.timestamp().numpy()
    except tf.errors.OpError as error:
        _log.info("%s is connected to anew: %s", task, error)
        return False
    return True


@contextlib.contextmanager
def _same_port(remote: Any) -> Iterator[None]:
    """Lets a program that connects again name the port on which it listens.

    Workers are told a new one, while TensorFlow's server in this process keeps the first.
    """
    from tensorflow.python.eager import context

    server = context.get_server_def()
    jobs = () if server is None else server.cluster.job
    own = [job.tasks[server.task_index] for job in jobs if job.name == server.job_name]
    if not own:
        yield
        return
    port = int(own[0].rpartition(":")[2])
    stock = remote.pywrap_tfe.TF_PickUnusedPortOrDie
    remote.pywrap_tfe.TF_PickUnusedPortOrDie = lambda: port
    try:
        yield
    finally:
        remote.pywrap_tfe.TF_PickUnusedPortOrDie = stock


@contextlib.contextmanager
def _watched(pywrap: Any, addresses: Mapping[str, str]) -> Iterator[None]:
    """Lets TensorFlow abandon connecting when a worker stops meanwhile; it would wait forever."""
    stock = {name: getattr(pywrap, name) for name in _SET_SERVER_DEF}
    # The other one holds Python's lock.
    connect = stock["TFE_ContextSetServerDefWithTimeoutAndRetries"]

    def set_server_def(
        handle: Any, keep_alive: int, server_def: bytes, timeout: int = 0, retries: int = 0
    ) -> None:
        arguments = (handle, keep_alive, server_def, timeout, retries)
        _watched_calls.watched(functools.partial(connect, *arguments), addresses, _workers.lost)

    for name in stock:
        setattr(pywrap, name, set_server_def)
    try:
        yield
    finally:
        for name, function in stock.items():
            setattr(pywrap, name, function)


def install_connect_to_cluster(changes: Changes) -> None:
    import tensorflow as tf
    from tensorflow.python.eager import remote

    def connect_of(stock: Callable[..., None]) -> Callable[..., None]:
        local_masters = find(remote, "_LOCAL_MASTERS")
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver

        def connect_to_cluster(cluster_spec_or_resolver: Any, *args: Any, **kwargs: Any) -> None:
            target = cluster_spec_or_resolver
            if not isinstance(target, resolver):
                stock(target, *args, **kwargs)
                return
            if target.master() in local_masters or _job_of(target) is not None:
                _device_names.take_job_as_own(target.get_job_name())
                return
            _device_names.take_no_job_as_own()
            _give_up_own_cores(target.master())
            os.environ.setdefault(STREAMING_VARIABLE, "false")
            cluster = target.cluster_spec()
            with _workers.connecting(cluster):
                _forget_lost_workers()
                watched = _watched(remote.pywrap_tfe, _workers.addresses_of(cluster))
                with _same_port(remote), watched:
                    stock(target, *args, **kwargs)

        return connect_to_cluster

    connect_to_cluster = changes.wrap(remote, "connect_to_cluster", connect_of)
    for module in (tf.config, tf.compat.v1.config, tf.compat.v2.config):
        changes.replace(module, "experimental_connect_to_cluster", connect_to_cluster)
