"""Serves a pipeline by tf.data service, as the process that started this one asks.

Messages are pickled dictionaries, one answer for each request. When the other end of the
connection is gone, this process ends.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

_PR_SET_PDEATHSIG = 1
# Python 3.9 reads it.
_PICKLE = 4
_DATASET = "pipeline"
# Which tasks a reader has is looked up in every such interval.
_HEARTBEAT_MS = 1000


def main(handle: int, parent: int) -> None:
    """Answers requests until the connection closes.

    Args:
        handle: The file descriptor of the connection.
        parent: The process id of the process that started this one.
    """
    # Also a stopped process, which would not see the connection close, must not stay.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    connection = Connection(handle)
    server = Server()
    while True:
        try:
            request = pickle.loads(connection.recv_bytes())
        except (EOFError, OSError):
            # Threads of TensorFlow may never end by themselves.
            os._exit(0)
        answer = _answer(getattr(server, request.pop("do")), request)
        sys.stdout.flush()
        sys.stderr.flush()
        connection.send_bytes(pickle.dumps(answer, protocol=_PICKLE))


def _answer(action: Callable[..., Any], request: dict[str, Any]) -> dict[str, Any]:
    number = request.pop("number")
    try:
        return {"number": number, "value": action(**request)}
    except BaseException as error:
        trace = error.__traceback__
        # Leaves out the frames of this program.
        while trace is not None and os.path.dirname(trace.tb_frame.f_code.co_filename) == _FOLDER:
            trace = trace.tb_next
        text = "".join(traceback.format_exception(type(error), error, trace))
        return {"number": number, "error": text}


_FOLDER = os.path.dirname(os.path.abspath(__file__))


class Server:
    """The pipeline of this process, and its servers."""

    _dataset: Any = None
    _served: Any = None

    def __init__(self) -> None:
        """Does nothing yet: TensorFlow takes seconds to import, and may fail."""
        self._servers: list[Any] = []

    def load(self, function: str, arguments: bytes, legacy: bool) -> bytes:
        """Makes the dataset; returns its element spec.

        Args:
            function: The place of the function that makes it.
            arguments: Its arguments, pickled: positional and keyword ones.
            legacy: Whether its module is written for TensorFlow 1.
        """
        from tensorflow.python.saved_model import nested_structure_coder

        from . import carrying, loading

        args, kwargs = pickle.loads(arguments)
        self._dataset = loading.make_dataset(function, args, kwargs, legacy)
        self._served = carrying.serializable(self._dataset)
        spec = self._dataset.element_spec
        return bytes(nested_structure_coder.encode_structure(spec).SerializeToString())

    def dispatch(self, readers: int) -> str:
        """Starts the dispatcher and registers the dataset; returns the dispatcher's address.

        Args:
            readers: How many readers there will be in all processes.
        """
        import tensorflow as tf

        from . import listening

        listening.install()
        service = tf.data.experimental.service
        dispatcher = service.DispatchServer(
            service.DispatcherConfig(
                port=0, protocol="grpc", worker_addresses=["127.0.0.1:%port%"] * readers
            )
        )
        self._servers.append(dispatcher)
        listening.check()
        address = f"127.0.0.1:{dispatcher.target.rpartition(':')[2]}"
        service.register_dataset(
            f"grpc://{address}", self._served, compression=None, dataset_id=_DATASET
        )
        return address

    def read(self, dispatcher: str, readers: int) -> str:
        """Starts readers in this process; returns the id of the dataset.

        Args:
            dispatcher: The address of the dispatcher.
            readers: How many readers to start.
        """
        import tensorflow as tf

        from . import listening

        listening.install()
        service = tf.data.experimental.service
        for _ in range(readers):
            worker = service.WorkerServer(
                service.WorkerConfig(
                    dispatcher_address=dispatcher,
                    worker_address="127.0.0.1:%port%",
                    port=0,
                    heartbeat_interval_ms=_HEARTBEAT_MS,
                )
            )
            self._servers.append(worker)
        listening.check()
        return _DATASET

    def explain(self, message: str) -> str:
        """Returns where the ops that an error message names were made."""
        from . import explaining

        return explaining.places_in(message, self._dataset)
