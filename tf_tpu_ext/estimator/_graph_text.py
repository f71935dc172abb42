"""Writes graphs as text with any version of protobuf."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from google.protobuf import text_format
from tensorflow.python.lib.io import file_io
from tensorflow.python.training import training_util

from tf_tpu_ext.patches._changes import Changes


def install(changes: Changes) -> None:
    """Replaces the function with which TensorFlow's hooks write graphs."""
    changes.wrap(training_util, "write_graph", _write_graph_of)


def _write_graph_of(stock: Callable[..., str]) -> Callable[..., str]:
    def write_graph(graph_or_graph_def: Any, logdir: str, name: str, as_text: bool = True) -> str:
        path = stock(graph_or_graph_def, logdir, name, as_text=False)
        if as_text:
            graph = graph_or_graph_def
            graph_def = graph.as_graph_def() if isinstance(graph, tf.Graph) else graph
            file_io.atomic_write_string_to_file(path, text_format.MessageToString(graph_def))
        return path

    return write_graph
