"""The patch by which programs carry the options that they were traced with."""

from __future__ import annotations

import functools
from typing import Any

from tf_tpu_ext import _options
from tf_tpu_ext.patches._attributes import Undo, replace_attributes

# The attribute of a NoOp in a traced function; see cc/program/traced_options.h.
_MARK = "_tpu_compile_options_proto"


def install_program_options() -> Undo:
    import tensorflow as tf
    from tensorflow.core.framework import attr_value_pb2
    from tensorflow.python.eager.polymorphic_function import transform
    from tensorflow.python.tpu.ops import tpu_ops

    stock = tpu_ops.tpu_replicate_metadata

    @functools.wraps(stock)
    def tpu_replicate_metadata(*args: Any, **kwargs: Any) -> Any:
        options = _options.compile_options()
        if options:
            # Serialized protos that are joined are merged.
            given = tf.compat.as_bytes(kwargs.get("tpu_compile_options_proto", b""))
            kwargs["tpu_compile_options_proto"] = given + options
        return stock(*args, **kwargs)

    def mark(graph: Any) -> None:
        options = _options.compile_options()
        if options:
            with graph.as_default(), tf.control_dependencies(None):
                operation = tf.no_op(name="tpu_compile_options")
            operation._set_attr(_MARK, attr_value_pb2.AttrValue(s=options))

    restore = replace_attributes([(tpu_ops, "tpu_replicate_metadata", tpu_replicate_metadata)])
    transform.FUNC_GRAPH_TRANSFORMS.append(mark)

    def undo() -> None:
        restore()
        transform.FUNC_GRAPH_TRANSFORMS.remove(mark)

    return undo
