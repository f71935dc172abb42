"""The elements from a pipeline's processes, as a `tf.data.Dataset` in this one."""

from __future__ import annotations

import weakref
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import struct_pb2
from tensorflow.python.data.ops import dataset_ops
from tensorflow.python.eager import context, execute
from tensorflow.python.framework import op_def_library
from tensorflow.python.saved_model import nested_structure_coder

from tf_tpu_ext.io._processes import Processes

_OP = "TpuExt>PipelineDataset"


class Source:
    """A pipeline whose processes end with this object and the iterations that have begun.

    Args:
        processes: The processes, which are already running.
    """

    def __init__(self, processes: Processes) -> None:
        self.processes = processes
        spec = struct_pb2.StructuredValue.FromString(processes.element_spec)
        self.element_spec: Any = nested_structure_coder.decode_proto(spec)
        weakref.finalize(self, processes.release)


# Keeps a graph's pipelines alive, because the graph's datasets have no Python objects.
_of_graphs: weakref.WeakKeyDictionary[Any, list[Source]] = weakref.WeakKeyDictionary()


def dataset_of(source: Source, legacy: bool) -> Any:
    """Returns a pipeline's dataset for the program.

    Args:
        source: The pipeline.
        legacy: Whether the program is written for TensorFlow 1.
    """
    spec = source.element_spec
    dataset: Any = _Tensors(source.processes.iterations.number, spec)
    if dataset.element_spec != spec:
        # The function must not hold the pipeline: TensorFlow keeps it until the process ends.
        @tf.autograph.experimental.do_not_convert
        def pack(*tensors: Any) -> Any:
            return tf.nest.pack_sequence_as(spec, tensors, expand_composites=True)

        dataset = dataset.map(pack)
    if legacy:
        dataset = dataset_ops.DatasetV1Adapter(dataset)
    dataset._tf_tpu_ext_source = source
    if not tf.executing_eagerly():
        graph = tf.compat.v1.get_default_graph()
        while graph is not None:
            _of_graphs.setdefault(graph, []).append(source)
            graph = getattr(graph, "outer_graph", None)
    return dataset


class _Tensors(dataset_ops.DatasetSource):
    """The elements of a pipeline, or their component tensors if they are not only tensors.

    Args:
        pipeline: The pipeline's number.
        element_spec: The structure of its elements.
    """

    def __init__(self, pipeline: int, element_spec: Any) -> None:
        parts = tf.nest.flatten(element_spec)
        tensors = tf.nest.flatten(element_spec, expand_composites=True)
        only_tensors = all(isinstance(part, tf.TensorSpec) for part in parts)
        self._element_spec = element_spec if only_tensors else tuple(tensors)
        with tf.device("/cpu:0"):
            super().__init__(_op(pipeline, tensors))

    @property
    def element_spec(self) -> Any:
        """The structure of this dataset's elements."""
        return self._element_spec


def _op(pipeline: int, tensors: list[Any]) -> Any:
    """Calls the op for such datasets and returns its output."""
    number = tf.constant(pipeline, tf.int64)
    types, shapes = [spec.dtype for spec in tensors], [spec.shape for spec in tensors]
    if not tf.executing_eagerly():
        # Not named after the op: a node with that name would have no scope.
        return op_def_library.apply_op(
            _OP,
            name="PipelineDataset",
            pipeline=number,
            output_types=types,
            output_shapes=shapes,
            metadata="",
        )
    numbers = tuple(dtype.as_datatype_enum for dtype in types)
    attributes = ("output_types", numbers, "output_shapes", shapes, "metadata", "")
    (dataset,) = execute.execute(_OP.encode(), 1, [number], attributes, context.context())
    return dataset
