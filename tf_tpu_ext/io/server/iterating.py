"""Iterates over the pipeline for one reader."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import traceback
from typing import Any

import tensorflow as tf
from tensorflow.python.data.experimental.ops import data_service_ops
from tensorflow.python.data.util import structure
from tensorflow.python.eager import cancellation, context, execute

from . import explaining
from .sending import ReaderGoneError, Sender

# How soon a new iteration learns which readers exist.
_REFRESH_MS = 20


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """The pipeline of this process.

    Attributes:
        function: The location of the function that created it.
        dataset: Its dataset.
        dispatcher: The address of tf.data service's dispatcher, if that divides the work.
        dataset_id: The dispatcher's name for the dataset.
        mode: A processing mode, or the name of a sharding policy.
    """

    function: str
    dataset: Any
    dispatcher: str | None
    dataset_id: str
    mode: str

    def elements(self, job: int) -> Any:
        """Returns a dataset of the elements of a job that the readers in this process read."""
        if self.dispatcher is None:
            return self.dataset
        policies = tf.data.experimental.service.ShardingPolicy
        return data_service_ops._from_dataset_id(
            policies[self.mode] if self.mode in policies.__members__ else self.mode,
            f"grpc://{self.dispatcher}",
            self.dataset_id,
            self.dataset.element_spec,
            job_name=str(job),
            task_refresh_interval_hint_ms=_REFRESH_MS,
            target_workers="LOCAL",
        )


class Iteration:
    """A thread that reads elements and sends them until they end or the reader is gone.

    Args:
        pipeline: The pipeline.
        job: The number of the tf.data service job that the iterations in all processes share.
        sender: The connection to the reader.
    """

    def __init__(self, pipeline: Pipeline, job: int, sender: Sender) -> None:
        """Starts the thread."""
        self.sender = sender
        self._pipeline = pipeline
        self._job = job
        self._cancellation = cancellation.CancellationManager()
        self._gone = threading.Event()
        threading.Thread(target=self._run, name=f"iteration {job}", daemon=True).start()

    def end(self) -> None:
        """Ends the iteration, because the reader is gone."""
        self._cancellation.start_cancel()
        self._gone.set()

    def _run(self) -> None:
        try:
            with contextlib.suppress(ReaderGoneError):
                self._send_all_and_the_end()
        finally:
            self.sender.finish()
            # Keep the descriptor, by which the code that waits for the socket's end knows it.
            self._gone.wait()
            self.sender.close()

    def _send_all_and_the_end(self) -> None:
        try:
            with tf.device("/cpu:0"):
                self._send_all()
            self.sender.send_end()
        except ReaderGoneError:
            raise
        except BaseException as error:
            self.sender.send_error(self._words_of(error))

    def _send_all(self) -> None:
        spec = self._pipeline.dataset.element_spec
        types = tuple(structure.get_flat_tensor_types(spec))
        shapes = tuple(structure.get_flat_tensor_shapes(spec))
        sent_types = [dtype.as_datatype_enum for dtype in component_types(spec)]
        has_composites = len(types) != len(sent_types) or tf.variant in types
        iterator = iter(self._pipeline.elements(self._job))
        while True:
            try:
                tensors = execute.execute_with_cancellation(
                    b"IteratorGetNext",
                    len(types),
                    [iterator._iterator_resource],
                    ("output_types", types, "output_shapes", shapes),
                    context.context(),
                    self._cancellation,
                )
            except tf.errors.OutOfRangeError:
                return
            if has_composites:
                element = structure.from_compatible_tensor_list(spec, list(tensors))
                tensors = _components(element)
            # Not numpy(), which makes a copy.
            self.sender.send_element([tensor._numpy() for tensor in tensors], sent_types)

    def _words_of(self, error: BaseException) -> str:
        if isinstance(error, tf.errors.OpError):
            places = explaining.places_in(error.message, self._pipeline.dataset)
            words = f"{type(error).__name__}: {error.message}\n{places}"
        else:
            words = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        return f"The pipeline {self._pipeline.function} failed in its process:\n{words}"


def component_types(spec: Any) -> list[Any]:
    """Returns the dtypes of the tensors that elements consist of.

    Raises:
        TypeError: An element has a part that is not a tensor and can't leave the process.
    """
    found = []
    for part in tf.nest.flatten(spec):
        types = [component.dtype for component in _components(part)]
        if tf.variant in types or tf.resource in types:
            raise TypeError(
                f"The pipeline's elements contain {part}, which can't leave its process. Expected "
                "tensors, ragged and sparse ones included: turn it into these in the pipeline."
            )
        found += types
    return found


def _components(element: Any) -> list[Any]:
    parts = tf.nest.flatten(element, expand_composites=True)
    return [part for part in parts if part is not None]
