"""The order of a function's outside compilation clusters.

A tf.function runs ops with side effects in program order, by means of control dependencies that
TensorFlow adds at the end of the trace. TensorFlow leaves out ops that XLA compiles, including the
clusters among them. `chain_effects` adds the missing dependencies: between ops with side effects in
clusters, and loops, branches and calls that contain such ops.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from tf_tpu_ext.tpu._clusters import cluster_of, function_graph

# Stateful by definition, but without a visible side effect.
_NO_EFFECT = frozenset({"ReadVariableOp", "VarHandleOp", "ResourceGather", "VarIsInitializedOp"})

_graphs_with_effects: weakref.WeakSet[Any] = weakref.WeakSet()


def chain_effects(graph: Any, operations: Sequence[tf.Operation]) -> None:
    """Makes the ops of `graph` with side effects in clusters run one after another.

    Args:
        graph: The graph of a function, branch or loop body, at the end of its trace.
        operations: Its new ops, in program order.
    """
    previous = None
    # Ops in clusters that no later op waits for yet. A cluster must be complete before the next
    # side effect: if a side effect came between its ops, TensorFlow would split the cluster, with
    # a part of the program in between.
    unfinished: list[tf.Operation] = []
    for op in operations:
        cluster = cluster_of(op)
        if _has_effect(graph, op):
            _graphs_with_effects.add(graph)
            others = [earlier for earlier in unfinished if cluster_of(earlier) != cluster]
            op._add_control_inputs(_ends(others))
            if previous is not None:
                op._add_control_input(previous)
            previous = op
            unfinished = [earlier for earlier in unfinished if cluster_of(earlier) == cluster]
        if cluster is not None:
            unfinished.append(op)


def _ends(operations: Sequence[tf.Operation]) -> list[tf.Operation]:
    """Returns those of the ops whose results none of the others takes."""
    taken = {tensor.op for op in operations for tensor in op.inputs}
    return [op for op in operations if op not in taken]


def _has_effect(graph: Any, op: tf.Operation) -> bool:
    if cluster_of(op) is not None:
        return bool(op.op_def.is_stateful) and op.type not in _NO_EFFECT
    return any(function_graph(graph, name) in _graphs_with_effects for name in called_functions(op))


def called_functions(op: tf.Operation) -> Iterator[str]:
    for attribute in op.op_def.attr:
        if attribute.type == "func":
            yield op.get_attr(attribute.name).name
        elif attribute.type == "list(func)":
            for function in op.get_attr(attribute.name):
                yield function.name
