"""Serves a pipeline at the request of the process that started this one.

Messages are pickled dictionaries, with one answer for each request. Another socket carries requests
for iterations: the number of a job, with the socket and the files that `Sender` takes. When the
other end of these is gone, this process ends.
"""

from __future__ import annotations

import os
import pickle
import select
import socket
import struct
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

# Python 3.9 can read it.
_PICKLE = 4
_JOB = struct.Struct("=q")
_MOST_FILES = 64
_DATASET = "pipeline"
# How often a reader looks up which tasks it has.
_HEARTBEAT_MS = 1000


def main(handle: int, requests: int, failure: BaseException | None) -> None:
    """Answers requests until the connection closes.

    Args:
        handle: The file descriptor of the connection.
        requests: The file descriptor of the socket with requests for iterations.
        failure: Why TensorFlow could not be imported, or None.
    """
    connection, asked = Connection(handle), socket.socket(fileno=requests)
    server = Server(failure)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    poll.register(asked, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            try:
                if ready == handle:
                    _serve(server, connection)
                elif ready == requests:
                    # Only the end of its socket is of interest here.
                    poll.register(server.iterate(asked), 0)
                else:
                    poll.unregister(ready)
                    server.end_iteration(ready)
            except (EOFError, OSError):
                # TensorFlow's threads may never end by themselves.
                os._exit(0)


def _serve(server: Server, connection: Connection) -> None:
    request = pickle.loads(connection.recv_bytes())
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
        # Skips the frames of this program.
        while trace is not None and os.path.dirname(trace.tb_frame.f_code.co_filename) == _FOLDER:
            trace = trace.tb_next
        text = "".join(traceback.format_exception(type(error), error, trace))
        return {"number": number, "error": text}


_FOLDER = os.path.dirname(os.path.abspath(__file__))


class Server:
    """This process's pipeline and its servers.

    Args:
        failure: Why TensorFlow could not be imported, or None.
    """

    _function = ""
    _dataset: Any = None
    _pipeline: Any = None

    def __init__(self, failure: BaseException | None) -> None:
        """Does nothing yet."""
        self._failure = failure
        self._servers: list[Any] = []
        self._iterations: dict[int, Any] = {}

    def load(self, function: str, arguments: bytes, legacy: bool) -> bytes:
        """Creates the dataset and returns its element spec.

        Args:
            function: The location of the function that makes it.
            arguments: The function's pickled arguments, positional and keyword.
            legacy: Whether the function's module is written for TensorFlow 1.
        """
        if self._failure is not None:
            raise self._failure
        from tensorflow.python.saved_model import nested_structure_coder

        from . import iterating, loading

        args, kwargs = pickle.loads(arguments)
        self._function = function
        self._dataset = loading.make_dataset(function, args, kwargs, legacy)
        spec = self._dataset.element_spec
        iterating.component_types(spec)
        return bytes(nested_structure_coder.encode_structure(spec).SerializeToString())

    def dispatch(self, readers: int) -> str:
        """Starts the dispatcher, registers the dataset and returns the dispatcher's address.

        Args:
            readers: The total number of readers in all processes.
        """
        import tensorflow as tf

        from . import carrying, listening

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
        served = carrying.serializable(self._dataset)
        service.register_dataset(f"grpc://{address}", served, compression=None, dataset_id=_DATASET)
        return address

    def read_alone(self) -> None:
        """Prepares to read the whole dataset with one reader, without tf.data service."""
        from . import iterating

        self._pipeline = iterating.Pipeline(self._function, self._dataset, None, "", "")

    def read(self, dispatcher: str, readers: int, mode: str) -> None:
        """Starts readers in this process.

        Args:
            dispatcher: The address of the dispatcher.
            readers: How many readers to start.
            mode: What they read: a processing mode, or the name of a sharding policy.
        """
        import tensorflow as tf

        from . import iterating, listening

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
        self._pipeline = iterating.Pipeline(
            self._function, self._dataset, dispatcher, _DATASET, mode
        )

    def iterate(self, requests: socket.socket) -> int:
        """Receives a request for an iteration, starts it and returns its socket's descriptor.

        Raises:
            EOFError: There will be no more requests.
        """
        from . import iterating, sending

        message, files, _, _ = socket.recv_fds(requests, _JOB.size, _MOST_FILES)
        if not message:
            raise EOFError
        (job,) = _JOB.unpack(message)
        for file in files:
            # Processes that the pipeline starts must not hold on to the memory.
            os.set_inheritable(file, False)
        sender = sending.Sender(socket.socket(fileno=files[0]), files[1:])
        self._iterations[files[0]] = iterating.Iteration(self._pipeline, job, sender)
        return files[0]

    def end_iteration(self, channel: int) -> None:
        """Ends the iteration whose reader is gone."""
        self._iterations.pop(channel).end()
