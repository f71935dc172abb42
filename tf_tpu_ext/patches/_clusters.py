"""Patches of outside compilation."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from tf_tpu_ext.patches._changes import Changes, find


def install_outside_compilation(changes: Changes) -> None:
    from tensorflow.python.framework import func_graph, ops
    from tensorflow.python.tpu import tpu_replication

    enclosing_context = find(tpu_replication, "_enclosing_tpu_context_and_graph")
    cluster_numbers = itertools.count()

    def in_replicated_computation() -> bool:
        try:
            enclosing_context()
        except ValueError:
            return False
        return True

    def impl_of(stock: Callable[..., Any]) -> Callable[..., Any]:
        def outside_compilation_impl(
            is_map: bool, computation: Callable[..., Any], *args: Any, **kwargs: Any
        ) -> Any:
            in_function = isinstance(ops.get_default_graph(), func_graph.FuncGraph)
            if not in_function or in_replicated_computation():
                return stock(is_map, computation, *args, **kwargs)
            # A compiled function may call this one and inline it: names must not repeat. Where
            # nothing is compiled, the mark means nothing.
            context = tpu_replication.OutsideCompilationV2Context(
                f"function_{next(cluster_numbers)}", is_map_outside_compilation=is_map
            )
            context.Enter()
            try:
                return computation(*args, **kwargs)
            finally:
                context.Exit()

        return outside_compilation_impl

    changes.wrap(tpu_replication, "outside_compilation_impl", impl_of)


def install_cluster_order(changes: Changes) -> None:
    from tensorflow.python.framework import auto_control_deps

    from tf_tpu_ext.tpu import _cluster_order

    def exit_of(stock: Callable[..., Any]) -> Callable[..., Any]:
        def exit_and_chain(self: Any, *args: Any) -> Any:
            # Eagerly there is no graph, and all is in order.
            graph = getattr(self, "_graph", None)
            if graph is not None and graph.building_function:
                operations = graph.get_operations()[self._n_operations :]
                _cluster_order.chain_effects(graph, operations)
            return stock(self, *args)

        return exit_and_chain

    changes.wrap(auto_control_deps.AutomaticControlDependencies, "__exit__", exit_of)


def install_cluster_calls(changes: Changes) -> None:
    import tensorflow as tf
    from tensorflow.python.tpu.tpu_replication import (
        OutsideCompilationV2Context,
        TPUReplicateContext,
    )

    from tf_tpu_ext.tpu import _cluster_functions, _clusters

    def add_of(stock: Callable[..., None]) -> Callable[..., None]:
        def add_and_mark(self: Any, op: Any) -> None:
            stock(self, op)
            _cluster_functions.mark_called_function(op)
            _clusters.mark_line(op)

        return add_and_mark

    def set_of(stock: Callable[..., None]) -> Callable[..., None]:
        def set_and_mark(self: Any, *args: Any, **kwargs: Any) -> None:
            stock(self, *args, **kwargs)
            _cluster_functions.mark_called_function(self)

        return set_and_mark

    # The first marks the ops of a v1 graph, the second those of a tf.function. Gradients give a
    # call another function later.
    changes.wrap(TPUReplicateContext, "AddOp", add_of)
    changes.wrap(OutsideCompilationV2Context, "_set_outside_compilation_attributes", add_of)
    changes.wrap(tf.Operation, "_set_func_attr", set_of)


def install_cluster_captures(changes: Changes) -> None:
    from tensorflow.python.ops import while_v2
    from tensorflow.python.tpu.tpu_replication import OutsideCompilationV2Context

    def capture_of(stock: Callable[..., Any]) -> Callable[..., Any]:
        def capture_helper(self: Any, *args: Any, **kwargs: Any) -> Any:
            context = self._get_control_flow_context()
            if not isinstance(context, OutsideCompilationV2Context):
                return stock(self, *args, **kwargs)
            self._set_control_flow_context(context.outer_context)
            try:
                return stock(self, *args, **kwargs)
            finally:
                self._set_control_flow_context(context)

        return capture_helper

    changes.wrap(while_v2._WhileBodyGradFuncGraph, "_capture_helper", capture_of)


def install_cluster_checks(changes: Changes) -> None:
    from tensorflow.python.tpu.tpu_replication import TPUReplicateContext

    from tf_tpu_ext import _graph_lines
    from tf_tpu_ext.tpu import _cluster_checks

    def exit_of(stock: Callable[..., None]) -> Callable[..., None]:
        def exit_result(self: Any, result: Any) -> None:
            stock(self, result)
            _cluster_checks.check(self)
            _graph_lines.lines.note_computation(self)

        return exit_result

    # Called once, when a computation has been traced. A function around the trace itself would show
    # in the user's tracebacks.
    changes.wrap(TPUReplicateContext, "ExitResult", exit_of)
