"""Function calls and branches inside an outside compilation cluster.

Each op of a cluster has a mark. When TensorFlow compiles, it inlines called functions, which loses
the mark of the call, so the body would be compiled for the cores. A call in a cluster therefore
calls a copy of the function in which every op has the mark.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, function_pb2
from tensorflow.python.eager.polymorphic_function import atomic_function

from tf_tpu_ext.tpu._clusters import CLUSTER_ATTRIBUTE

# The attributes of an op that name the functions it calls.
_CALLS = {
    "PartitionedCall": ("f",),
    "StatefulPartitionedCall": ("f",),
    "If": ("then_branch", "else_branch"),
    "StatelessIf": ("then_branch", "else_branch"),
}
# The cluster's name, and whether each core of a replica calls it separately.
_MARKS = (CLUSTER_ATTRIBUTE, "_xla_map_outside_compilation")


def mark_called_function(op: tf.Operation) -> None:
    """Makes a call that belongs to a cluster call a function whose ops belong to it, too.

    Branches count as calls, because TensorFlow inlines a branch once it knows which one is taken.
    Loops need no change, because they move to the host as a whole.

    Args:
        op: Any op whose function has just been set.
    """
    if op.type not in _CALLS:
        return
    marks = {name: value for name in _MARKS if (value := op.node_def.attr.get(name)) is not None}
    if _MARKS[0] not in marks:
        return
    for attribute in _CALLS[op.type]:
        name = op.get_attr(attribute).name
        marked = _marked(op.graph, name, marks)
        if marked != name:
            op._set_func_attr(attribute, marked)


def _marked(graph: Any, name: str, marks: dict[str, attr_value_pb2.AttrValue]) -> str:
    """Returns the name of the function's marked copy, after adding it to the graph if needed."""
    function = graph._get_function(name)
    if not isinstance(function, atomic_function.AtomicFunction):
        return name
    cluster = marks[_MARKS[0]].s.decode()
    suffix = f"_in_cluster_{cluster}"
    if name.endswith(suffix):
        return name
    marked_name = name + suffix
    if graph._is_function(marked_name):
        return marked_name
    # A copy that can be changed.
    definition: function_pb2.FunctionDef = function.definition
    children = list(function.children)
    definition.signature.name = marked_name
    for node in definition.node_def:
        for mark, value in marks.items():
            node.attr[mark].CopyFrom(value)
        for attribute in _CALLS.get(node.op, ()):
            # A graph's library holds the functions that its functions call.
            called = node.attr[attribute].func
            called.name = _marked(graph, called.name, marks)
            children.append(graph._get_function(called.name))
    runtime = function._bound_context
    if not runtime.has_function(marked_name):
        runtime.add_function_def(definition)
    graph._add_function_recursive(
        atomic_function.AtomicFunction(
            marked_name,
            runtime,
            function.function_type,
            children,
            function.call_options,
            cached_graph=function.graph,
        )
    )
    return marked_name
