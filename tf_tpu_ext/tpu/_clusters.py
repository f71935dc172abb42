"""Determines which outside compilation cluster an op belongs to."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2

from tf_tpu_ext import _user_lines, _workers

CLUSTER_ATTRIBUTE = "_xla_outside_compilation"
# cc/ops/op_names.h
_LINE_ATTRIBUTE = "_tpu_ext_python_line"


def cluster_of(op: tf.Operation) -> str | None:
    """Returns the name of the op's cluster, or None if it belongs to none."""
    return text_attribute(op, CLUSTER_ATTRIBUTE)


def mark_line(op: tf.Operation) -> None:
    """Records in a cluster's op the Python line that made it, if workers may run the op.

    TensorFlow sends workers functions without stack traces.
    """
    if not _workers.known or cluster_of(op) is None:
        return
    line = _user_lines.user_line(op.traceback or ())
    if line:
        op._set_attr(_LINE_ATTRIBUTE, attr_value_pb2.AttrValue(s=line.encode()))


def text_attribute(op: tf.Operation, name: str) -> str | None:
    """Returns the value of a string attribute, or None if the op does not have it."""
    try:
        value: bytes = op.get_attr(name)
    except ValueError:
        return None
    return value.decode()


def function_graph(graph: Any, name: str) -> Any | None:
    """Returns the graph of the function with that name, as seen from `graph`, or None."""
    while graph is not None:
        function = graph._get_function(name)
        if function is not None:
            return getattr(function, "graph", None)
        graph = getattr(graph, "outer_graph", None)
    return None
