"""Patches of outside compilation."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

from tf_tpu_ext.patches._attributes import Undo, replace_attributes


def install_outside_compilation() -> Undo:
    from tensorflow.python.framework import func_graph, ops
    from tensorflow.python.tpu import tpu_replication

    stock = tpu_replication.outside_compilation_impl
    cluster_numbers = itertools.count()

    def in_replicated_computation() -> bool:
        try:
            tpu_replication._enclosing_tpu_context_and_graph()
        except ValueError:
            return False
        return True

    @functools.wraps(stock)
    def outside_compilation_impl(
        is_map: bool, computation: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        in_function = isinstance(ops.get_default_graph(), func_graph.FuncGraph)
        if not in_function or in_replicated_computation():
            return stock(is_map, computation, *args, **kwargs)
        # A compiled function may call this one and inline it: names must not repeat. Where nothing
        # is compiled, the mark means nothing.
        context = tpu_replication.OutsideCompilationV2Context(
            f"function_{next(cluster_numbers)}", is_map_outside_compilation=is_map
        )
        context.Enter()
        try:
            return computation(*args, **kwargs)
        finally:
            context.Exit()

    return replace_attributes(
        [(tpu_replication, "outside_compilation_impl", outside_compilation_impl)]
    )


def install_cluster_order() -> Undo:
    from tensorflow.python.framework import auto_control_deps

    from tf_tpu_ext.tpu import _cluster_order

    dependencies = auto_control_deps.AutomaticControlDependencies
    stock = vars(dependencies)["__exit__"]

    @functools.wraps(stock)
    def exit_and_chain(self: Any, *args: Any) -> Any:
        # Eagerly there is no graph, and all is in order.
        graph = getattr(self, "_graph", None)
        if graph is not None and graph.building_function:
            operations = graph.get_operations()[self._n_operations :]
            _cluster_order.chain_effects(graph, operations)
        return stock(self, *args)

    return replace_attributes([(dependencies, "__exit__", exit_and_chain)])


def install_cluster_calls() -> Undo:
    import tensorflow as tf
    from tensorflow.python.tpu.tpu_replication import (
        OutsideCompilationV2Context,
        TPUReplicateContext,
    )

    from tf_tpu_ext.tpu import _cluster_functions

    def replacement(stock: Callable[..., None], op_of: Callable[..., Any]) -> Callable[..., None]:
        @functools.wraps(stock)
        def then_mark(*args: Any, **kwargs: Any) -> None:
            stock(*args, **kwargs)
            _cluster_functions.mark_called_function(op_of(*args))

        return then_mark

    # The first marks the ops of a v1 graph, the second those of a tf.function. Gradients give a
    # call another function later.
    places: list[tuple[type, str, Callable[..., Any]]] = [
        (TPUReplicateContext, "AddOp", lambda _, op: op),
        (OutsideCompilationV2Context, "_set_outside_compilation_attributes", lambda _, op: op),
        (tf.Operation, "_set_func_attr", lambda op, *_: op),
    ]
    return replace_attributes(
        [(owner, name, replacement(vars(owner)[name], op_of)) for owner, name, op_of in places]
    )


def install_cluster_captures() -> Undo:
    from tensorflow.python.ops import while_v2
    from tensorflow.python.tpu.tpu_replication import OutsideCompilationV2Context

    body = while_v2._WhileBodyGradFuncGraph
    stock = vars(body)["_capture_helper"]

    @functools.wraps(stock)
    def capture_helper(self: Any, *args: Any, **kwargs: Any) -> Any:
        context = self._get_control_flow_context()
        if not isinstance(context, OutsideCompilationV2Context):
            return stock(self, *args, **kwargs)
        self._set_control_flow_context(context.outer_context)
        try:
            return stock(self, *args, **kwargs)
        finally:
            self._set_control_flow_context(context)

    return replace_attributes([(body, "_capture_helper", capture_helper)])


def install_cluster_checks() -> Undo:
    from tensorflow.python.tpu.tpu_replication import TPUReplicateContext

    from tf_tpu_ext.tpu import _cluster_checks

    # Called once, when a computation has been traced. A function around the trace itself would show
    # in the user's tracebacks.
    stock = TPUReplicateContext.ExitResult

    @functools.wraps(stock)
    def exit_result(self: Any, result: Any) -> None:
        stock(self, result)
        _cluster_checks.check(self)

    return replace_attributes([(TPUReplicateContext, "ExitResult", exit_result)])
