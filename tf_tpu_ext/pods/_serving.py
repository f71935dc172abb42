"""Serves this host's cores until a signal ends it."""

from __future__ import annotations

import getpass
import ipaddress
import os
import signal
import socket
import sys
from collections.abc import Collection

from tf_tpu_ext import _machine, _version
from tf_tpu_ext.io.server import listening
from tf_tpu_ext.patches import _resolver
from tf_tpu_ext.pods._places import Place

_JOB = "tpu_worker"
# Each step of a client occupies one thread, and the others serve what steps wait for. TensorFlow's
# default is the number of processors.
_SERVING_THREADS = 64
_CREATE_CONTEXT = "/tensorflow.eager.EagerService/CreateContext"
_FIRST_CONTEXT_SECONDS = 30


def serve(place: Place, ending: Collection[signal.Signals], address: str) -> None:
    """Serves this process's cores to programs until a signal ends the process.

    Call it before TensorFlow's first operation.

    Args:
        place: This host's place in the pod; port 0 stands for any free port.
        ending: The signals, which all threads of the process must block, because TensorFlow
            replaces the SIGTERM handler when a program connects.
        address: The address of this machine to listen on. The server is not protected.

    Raises:
        ValueError: `address` is not a valid address.
        OSError: The port is taken, or the address does not belong to this machine.
        RuntimeError: TensorFlow's server can't be started or can't be restricted to the address.
    """
    import tensorflow as tf

    listening.install(address)
    # Workers are clients of each other.
    os.environ.setdefault(_resolver.STREAMING_VARIABLE, "false")
    _check_free(place.port, address)
    try:
        # Each client tells the server about the other hosts when it connects.
        server = tf.distribute.Server(
            {_JOB: [f"localhost:{place.port}"]},
            job_name=_JOB,
            protocol="grpc",
            config=tf.compat.v1.ConfigProto(inter_op_parallelism_threads=_SERVING_THREADS),
        )
    except tf.errors.OpError as error:
        raise RuntimeError(f"TensorFlow's server can't start: {error.message}") from error
    listening.check()
    place = place.at_port(int(server.target.rpartition(":")[2]))
    _make_first_context(_reachable(address, place.port))
    _tell(place, address)
    ended_by = signal.sigwait(ending)
    print(f"tf-tpu worker: ended by {signal.Signals(ended_by).name}", file=sys.stderr, flush=True)
    del server
    # TensorFlow can't stop its server; clients see that the connection has closed.
    os._exit(0 if ended_by == signal.SIGTERM else 130)


def _reachable(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _make_first_context(address: str) -> None:
    """Creates an eager context that stays, as a program does when it connects.

    A server without contexts replaces what they share. If two programs connect first at the same
    moment, it does so twice, and the first one's use of freed memory ends the process.
    """
    import grpc

    # The request's `context_id`, fixed64 field 7; TensorFlow's wheel has no Python class for it.
    # Without a cluster, it uses the server's own connections; without `keep_alive_secs`, it stays.
    request = b"\x39" + (1).to_bytes(8, "little")
    # Not through a proxy from the environment.
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        create = channel.unary_unary(_CREATE_CONTEXT)
        try:
            create(request, timeout=_FIRST_CONTEXT_SECONDS, wait_for_ready=True)
        except grpc.RpcError as error:
            raise RuntimeError(
                f"TensorFlow's server at {address} makes no context: {error.details()}"
            ) from error


def _check_free(port: int, address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # A port whose last connections are still closing counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            raise OSError(
                f"Can't listen on {address}, port {port}: {error.strerror}. Name another port by "
                "--port, or an address of this machine by --listen."
            ) from error


def _tell(place: Place, address: str) -> None:
    import tensorflow as tf

    cores = _machine.machine().cores
    print(
        f"tf-tpu worker: {cores} cores, task {place.task} of {len(place.hosts)}, healthy "
        f"(tf_tpu_ext {_version.VERSION}, TensorFlow {tf.__version__}, process {os.getpid()})"
    )
    if not ipaddress.ip_address(address).is_loopback:
        print(
            f"tf-tpu worker: whoever reaches {address}, port {place.port}, can run any program as "
            f"{getpass.getuser()}: there is no password and no encryption"
        )
    elif len(place.hosts) > 1 or not place.hosts[0].startswith("localhost:"):
        print(
            f"tf-tpu worker: listens on {address} only, where other machines can't connect; "
            "--listen names another address"
        )
    print(f"tf-tpu worker: for programs: TPUClusterResolver({place.master!r})", flush=True)
