"""Reads elements of a pipeline's processes into a `tf.data.Dataset` of this one.

TensorFlow's tf.data service carries the elements. Its client retries for an hour if a process is
gone and waits forever if one stalls, so it is not the dataset that the program gets: that one calls
Python for each element, which reads it in a way that errors of the processes, and Ctrl-C, can end.
"""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import struct_pb2
from tensorflow.python.data.experimental.ops import data_service_ops
from tensorflow.python.data.ops import dataset_ops, from_generator_op
from tensorflow.python.data.util import structure
from tensorflow.python.eager import cancellation, context, execute
from tensorflow.python.saved_model import nested_structure_coder

from tf_tpu_ext import _interrupts
from tf_tpu_ext.io._errors import PipelineError
from tf_tpu_ext.io._processes import Processes

# How soon a new iterator learns which readers there are.
_REFRESH_MS = 20
# How many elements wait in this process for their turn.
_PREFETCH = 4
# Longer than it takes TensorFlow to ask for an element after it has got the one before.
_QUIET_SECONDS = 0.1

_numbers = itertools.count(1)
# TensorFlow knows an iterator by its number.
_iterators: dict[int, Iterator] = {}


class Iterator:
    """One iteration over a pipeline.

    Args:
        source: The pipeline, which is kept alive by its iterators.
        elements: Its elements, as a dataset of tf.data service.
    """

    def __init__(self, source: Source, elements: Any) -> None:
        self.source = source
        self.interrupted = False
        self._elements = iter(elements)
        self._types = tuple(structure.get_flat_tensor_types(source.element_spec))
        self._shapes = tuple(structure.get_flat_tensor_shapes(source.element_spec))
        self._cancellation = cancellation.CancellationManager()
        self._waits_since: float | None = None
        self._last_call = 0.0

    def next(self) -> list[Any]:
        """Returns the tensors of the next element.

        Raises:
            StopIteration: There are no more.
            PipelineError: The pipeline failed.
        """
        processes = self.source.processes
        self._waits_since = self._last_call = time.monotonic()
        try:
            if processes.error is not None:
                raise PipelineError(processes.error)
            return list(
                execute.execute_with_cancellation(
                    b"IteratorGetNext",
                    len(self._types),
                    [self._elements._iterator_resource],
                    ("output_types", self._types, "output_shapes", self._shapes),
                    context.context(),
                    self._cancellation,
                )
            )
        except tf.errors.OutOfRangeError:
            raise StopIteration from None
        except tf.errors.OpError as error:
            raise PipelineError(self._words_of(error)) from None
        finally:
            self._waits_since = None
            self._last_call = time.monotonic()

    def waits(self) -> float:
        """Returns for how many seconds it has waited for an element."""
        since = self._waits_since
        return 0.0 if since is None else time.monotonic() - since

    def is_quiet(self) -> bool:
        """Returns whether it does not wait for an element, and has not for a moment."""
        quiet = time.monotonic() - self._last_call > _QUIET_SECONDS
        return self._waits_since is None and quiet

    def cancel(self) -> None:
        """Ends the wait for an element in an error; there will be no other element."""
        self._cancellation.start_cancel()

    def _words_of(self, error: tf.errors.OpError) -> str:
        processes = self.source.processes
        if processes.error is not None:
            return processes.error
        if self.interrupted:
            return "Ctrl-C ended the iteration. To go on, make a new iterator."
        places = processes.explain(error.message)
        return (
            f"The pipeline {processes.function} failed in its process:\n"
            f"{type(error).__name__}: {error.message}\n{places}"
        )


class Iterators:
    """The iterators of one pipeline, whose waits Ctrl-C ends."""

    def __init__(self) -> None:
        self._by_number: dict[int, Iterator] = {}
        _hear_interrupts(self)

    def add(self, iterator: Iterator) -> int:
        """Adds an iterator; returns its number."""
        number = next(_numbers)
        self._by_number[number] = _iterators[number] = iterator
        return number

    def remove(self, number: int) -> None:
        """Forgets an iterator that TensorFlow is about to delete."""
        _iterators.pop(number, None)
        self._by_number.pop(number, None)

    def stalled(self, limit: float) -> bool:
        """Returns whether one has waited for more than so many seconds."""
        return any(iterator.waits() > limit for iterator in list(self._by_number.values()))

    def is_quiet(self) -> bool:
        """Returns whether none waits, and none has for a moment."""
        return all(iterator.is_quiet() for iterator in list(self._by_number.values()))

    def cancel(self) -> None:
        """Ends all waits in errors."""
        for iterator in list(self._by_number.values()):
            iterator.cancel()

    def interrupt(self) -> None:
        """Ends all iterations because of Ctrl-C: one that does not wait yet may be about to."""
        for iterator in list(self._by_number.values()):
            iterator.interrupted = True
            iterator.cancel()


_interruptible: weakref.WeakSet[Iterators] = weakref.WeakSet()
_listener: _interrupts.Listener | None = None


def _hear_interrupts(iterators: Iterators) -> None:
    global _listener
    _interruptible.add(iterators)
    # One for the process: pipelines may end on any thread.
    if _listener is None and _interrupts.is_possible():
        _listener = _interrupts.Listener(_interrupt_all)


def _interrupt_all() -> None:
    for iterators in list(_interruptible):
        iterators.interrupt()


class Source:
    """A pipeline whose processes serve its elements, and end with this object.

    Args:
        processes: The processes, which have started.
        iterators: The iterators that they watch.
        processing_mode: A processing mode of tf.data service.
    """

    def __init__(self, processes: Processes, iterators: Iterators, processing_mode: Any) -> None:
        self.processes = processes
        self.iterators = iterators
        spec = struct_pb2.StructuredValue.FromString(processes.element_spec)
        self.element_spec: Any = nested_structure_coder.decode_proto(spec)
        self._mode = processing_mode
        self._elements: Any = None
        self._lock = threading.Lock()
        weakref.finalize(self, processes.close)

    def open(self) -> int:
        """Begins an iteration; returns the number of its iterator."""
        with tf.device("/cpu:0"):
            return self.iterators.add(Iterator(self, self._dataset()))

    def _dataset(self) -> Any:
        with self._lock:
            if self._elements is None:
                self._elements = data_service_ops._from_dataset_id(
                    self._mode,
                    f"grpc://{self.processes.address}",
                    self.processes.dataset_id,
                    self.element_spec,
                    task_refresh_interval_hint_ms=_REFRESH_MS,
                    data_transfer_protocol="grpc",
                    target_workers="ANY",
                )
            return self._elements


# What keeps the pipelines of a graph alive, whose datasets have no objects in Python.
_of_graphs: weakref.WeakKeyDictionary[Any, list[Source]] = weakref.WeakKeyDictionary()


def dataset_of(source: Source, legacy: bool) -> Any:
    """Returns the dataset of a pipeline for the program.

    Args:
        source: The pipeline.
        legacy: Whether the program is written for TensorFlow 1.
    """
    # TensorFlow keeps the functions that datasets call for as long as the process lives.
    dataset = _Elements(weakref.ref(source), source.element_spec).prefetch(_PREFETCH)
    if legacy:
        dataset = dataset_ops.DatasetV1Adapter(dataset)
    dataset._tf_tpu_ext_source = source
    if not tf.executing_eagerly():
        graph = tf.compat.v1.get_default_graph()
        while graph is not None:
            _of_graphs.setdefault(graph, []).append(source)
            graph = getattr(graph, "outer_graph", None)
    return dataset


class _Elements(from_generator_op._GeneratorDataset):
    """The elements of a pipeline, each by a call of Python.

    Args:
        source: The pipeline.
        element_spec: The structure of its elements.
    """

    def __init__(self, source: Callable[[], Source | None], element_spec: Any) -> None:
        types = structure.get_flat_tensor_types(element_spec)
        shapes = structure.get_flat_tensor_shapes(element_spec)

        def open_(_: Any) -> int:
            pipeline = source()
            if pipeline is None:
                raise PipelineError(
                    "The pipeline has ended with its dataset, of which the program kept nothing "
                    "but tensors. Keep the dataset that tf_tpu_ext.io.dataset returned."
                )
            return pipeline.open()

        def next_(number: Any) -> list[Any]:
            return _iterators[int(number)].next()

        def close(number: Any) -> int:
            iterator = _iterators.get(int(number))
            if iterator is not None:
                iterator.source.iterators.remove(int(number))
            return 0

        def next_tensors(number: Any) -> Any:
            tensors = tf.py_function(next_, [number], types)
            for tensor, shape in zip(tensors, shapes, strict=True):
                tensor.set_shape(shape)
            return structure.from_compatible_tensor_list(element_spec, tensors)

        super().__init__(
            tf.constant(0, tf.int64),
            lambda unused: _call(open_, unused),
            next_tensors,
            lambda number: _call(close, number),
            element_spec,
        )


def _call(function: Callable[[Any], int], argument: Any) -> Any:
    number = tf.py_function(function, [argument], tf.int64)
    number.set_shape([])
    return number
