"""Patches of ops inside TPU computations, and of infeed."""

from __future__ import annotations

import functools
import inspect
import os
import socket
from collections.abc import Callable
from typing import Any

import numpy as np

from tf_tpu_ext.patches._changes import Changes


def install_all_to_all(changes: Changes) -> None:
    import tensorflow as tf
    from tensorflow.python.tpu.ops import tpu_ops

    def all_to_all_of(stock: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(stock)

        def all_to_all(*args: Any, **kwargs: Any) -> Any:
            if not tf.executing_eagerly():
                return stock(*args, **kwargs)
            try:
                given = signature.bind(*args, **kwargs).arguments
            except TypeError:
                # Raises TensorFlow's own error, which names its own function.
                stock(*args, **kwargs)
                raise
            given["x"] = tf.convert_to_tensor(given["x"])
            if given.get("group_assignment") is not None:
                given["group_assignment"] = np.asarray(given["group_assignment"])
            with tf.Graph().as_default():
                # Only graphs run the op's shape function, which checks the arguments.
                x = tf.compat.v1.placeholder(given["x"].dtype, given["x"].shape)
                checked = stock(**{**given, "x": x})
                given["group_assignment"] = tf.get_static_value(checked.op.inputs[1])
            return stock(**given)

        return all_to_all

    changes.wrap(tpu_ops, "all_to_all", all_to_all_of, uses=("x", "group_assignment"))


def install_python_functions(changes: Changes) -> None:
    from tensorflow.python.ops import script_ops

    def call_of(stock: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, token: str, device: Any, args: Any) -> Any:
            if self.get(token) is not None:
                return stock(self, token, device, args)
            raise ValueError(
                f"Could not find callback with key={token} in the registry of process "
                f"{os.getpid()} on {socket.gethostname()}. A Python function runs only in the "
                "process that made it. If this process is a worker, use TensorFlow's ops instead "
                "of tf.numpy_function and tf.py_function in outside compilation and in input "
                "pipelines, or run the program on cores of its own."
            )

        return call

    # Every class has a __call__ that takes anything: its own type's.
    changes.wrap(script_ops.FuncRegistry, "__call__", call_of, uses=("token",))


def _builds_tpu_computation() -> bool:
    """Returns whether a new op would be part of a TPU computation that runs on the cores."""
    import tensorflow as tf
    from tensorflow.python.tpu import tpu_replication

    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        context = graph._get_control_flow_context()
        while context is not None:
            if isinstance(context, tpu_replication.OutsideCompilationV2Context):
                return False
            if isinstance(context, tpu_replication.TPUReplicateContext):
                return not context._outside_compilation_cluster
            context = context.outer_context
        # Loops, branches and functions have graphs of their own.
        graph = getattr(graph, "outer_graph", None)
    return False


def install_resource_scatters(changes: Changes) -> None:
    import tensorflow as tf
    from tensorflow.python.ops import gen_resource_variable_ops as generated

    raw = tf.raw_ops

    def scatter_by(op: Callable[..., Any]) -> Callable[..., Any]:
        return lambda old, indices, updates: op(
            tensor=old, indices=indices[..., tf.newaxis], updates=updates
        )

    def combine_by(op: Callable[..., Any]) -> Callable[..., Any]:
        # Rows that no index names are combined with 1.
        return lambda old, indices, updates: op(
            x=old,
            y=raw.UnsortedSegmentProd(
                data=updates, segment_ids=indices, num_segments=tf.shape(old)[0]
            ),
        )

    def scatter_of(new_value: Callable[..., Any], stock: Callable[..., Any]) -> Callable[..., Any]:
        def scatter(resource: Any, indices: Any, updates: Any, name: str | None = None) -> Any:
            if not _builds_tpu_computation():
                return stock(resource, indices, updates, name)
            with tf.name_scope(name or stock.__name__):
                indices, updates = tf.convert_to_tensor(indices), tf.convert_to_tensor(updates)
                old = raw.ReadVariableOp(resource=resource, dtype=updates.dtype)
                # The op also accepts a scalar for all elements.
                shape = tf.concat([tf.shape(indices), tf.shape(old)[1:]], axis=0)
                value = new_value(old, indices, tf.broadcast_to(updates, shape))
                return raw.AssignVariableOp(resource=resource, value=value)

        return scatter

    new_values = {
        "sub": scatter_by(raw.TensorScatterSub),
        "min": scatter_by(raw.TensorScatterMin),
        "max": scatter_by(raw.TensorScatterMax),
        "mul": combine_by(raw.Mul),
        "div": combine_by(raw.Div),
    }
    for name, new_value in new_values.items():
        wrapper_of = functools.partial(scatter_of, new_value)
        changes.wrap(generated, f"resource_scatter_{name}", wrapper_of)


def install_partitioned_infeed(changes: Changes) -> None:
    from tensorflow.python.tpu import tpu_feed

    from tf_tpu_ext.tpu import _partitioned_infeed

    queue = tpu_feed._PartitionedInfeedQueue
    changes.replace(queue, "generate_enqueue_ops", _partitioned_infeed.enqueue_ops)
    changes.replace(queue, "generate_dequeue_op", _partitioned_infeed.dequeue_op)
