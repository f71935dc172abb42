"""Finds where in the pipeline's source code an op was created."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

_NODE = re.compile(r"\{\{node ([^}]+)\}\}")
_LIBRARIES = os.path.dirname(os.path.dirname(os.path.abspath(tf.__file__))) + os.sep


def places_in(message: str, dataset: Any) -> str:
    """Returns tracebacks of the ops that an error message names, without library frames.

    Args:
        message: The message, in which TensorFlow names ops as `{{node NAME}}`.
        dataset: The dataset whose functions may contain the nodes.
    """
    lines: list[str] = []
    for name in dict.fromkeys(_NODE.findall(message)):
        for graph in _graphs(dataset, set()):
            try:
                frames = graph.get_operation_by_name(name).traceback
            except (KeyError, ValueError):
                continue
            own = [
                traceback.FrameSummary(frame[0], frame[1], frame[2])
                for frame in frames
                if not os.path.abspath(frame[0]).startswith(_LIBRARIES)
                and os.path.exists(frame[0])
                and os.path.dirname(os.path.abspath(__file__)) not in os.path.abspath(frame[0])
            ]
            text = "".join(traceback.format_list(own))
            lines.append(f"Op {name!r} was made at (most recent call last):\n{text}")
            break
    return "\n".join(lines)


def _graphs(dataset: Any, seen: Any) -> Iterator[Any]:
    if id(dataset) in seen:
        return
    seen.add(id(dataset))
    for function in dataset._functions():
        yield from _with_inner(function.function.graph)
    for source in dataset._inputs():
        yield from _graphs(source, seen)


def _with_inner(graph: Any) -> Iterator[Any]:
    """Yields a graph and the graphs of the functions that its ops call."""
    yield graph
    for function in getattr(graph, "_functions", {}).values():
        inner = getattr(function, "graph", None)
        if inner is not None and inner is not graph:
            yield from _with_inner(inner)
