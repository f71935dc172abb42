"""The patch that stores the options of a trace in its programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tf_tpu_ext import _options
from tf_tpu_ext.patches._changes import Changes

# The attribute of a NoOp in a traced function; see cc/program/traced_options.h.
_MARK = "_tpu_compile_options_proto"


def install_program_options(changes: Changes) -> None:
    import tensorflow as tf
    from tensorflow.core.framework import attr_value_pb2
    from tensorflow.python.eager.polymorphic_function import transform
    from tensorflow.python.tpu.ops import tpu_ops

    def metadata_of(stock: Callable[..., Any]) -> Callable[..., Any]:
        def tpu_replicate_metadata(*args: Any, **kwargs: Any) -> Any:
            options = _options.compile_options()
            if options:
                # Concatenating serialized protos merges them.
                given = tf.compat.as_bytes(kwargs.get("tpu_compile_options_proto", b""))
                kwargs["tpu_compile_options_proto"] = given + options
            return stock(*args, **kwargs)

        return tpu_replicate_metadata

    def mark(graph: Any) -> None:
        options = _options.compile_options()
        if options:
            with graph.as_default(), tf.control_dependencies(None):
                operation = tf.no_op(name="tpu_compile_options")
            operation._set_attr(_MARK, attr_value_pb2.AttrValue(s=options))

    changes.wrap(
        tpu_ops, "tpu_replicate_metadata", metadata_of, uses=("tpu_compile_options_proto",)
    )
    transform.FUNC_GRAPH_TRANSFORMS.append(mark)
    changes.on_undo(lambda: transform.FUNC_GRAPH_TRANSFORMS.remove(mark))
