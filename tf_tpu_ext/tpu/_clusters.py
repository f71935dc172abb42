"""Finds out to which outside compilation cluster an op belongs."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

CLUSTER_ATTRIBUTE = "_xla_outside_compilation"


def cluster_of(op: tf.Operation) -> str | None:
    """Returns the name of the op's cluster, or None if it belongs to none."""
    return text_attribute(op, CLUSTER_ATTRIBUTE)


def text_attribute(op: tf.Operation, name: str) -> str | None:
    """Returns the value of a string attribute, or None if the op does not have it."""
    try:
        value: bytes = op.get_attr(name)
    except ValueError:
        return None
    return value.decode()


def function_graph(graph: Any, name: str) -> Any | None:
    """Returns the graph of the function of that name, as seen from `graph`, or None."""
    while graph is not None:
        function = graph._get_function(name)
        if function is not None:
            return getattr(function, "graph", None)
        graph = getattr(graph, "outer_graph", None)
    return None
