"""Checks of outside compilation clusters, made when their computation has been traced.

A cluster is a part of a computation that `outside_compilation` moves to the host. It must not use
variables on TPU cores or share a host variable with the rest of the computation, and can pass to
the cores only what they can hold. The checks look at the graph, so it does not matter how the
Python code passes a variable to the cluster.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import func_graph, ops
from tensorflow.python.tpu.tpu_replication import TPUReplicateContext

from tf_tpu_ext._user_lines import user_line
from tf_tpu_ext.tpu._clusters import cluster_of, function_graph, text_attribute

_REPLICATE_ATTRIBUTE = "_tpu_replicate"

_CANNOT_CROSS = (tf.string, tf.resource, tf.variant)

# Ops that return their inputs unchanged.
_PASSES_ON = frozenset(
    [
        "Enter",
        "Exit",
        "Identity",
        "IdentityN",
        "Merge",
        "NextIteration",
        "Switch",
        "TPUPartitionedInput",
        "TPUPartitionedInputV2",
        "TPUReplicatedInput",
    ]
)
# The attributes that name an op's functions, and the index of the first input passed to them.
_FUNCTIONS = {
    "Case": (("branches",), 1),
    "If": (("then_branch", "else_branch"), 1),
    "PartitionedCall": (("f",), 0),
    "StatefulPartitionedCall": (("f",), 0),
    "StatelessCase": (("branches",), 1),
    "StatelessIf": (("then_branch", "else_branch"), 1),
    "StatelessWhile": (("cond", "body"), 0),
    "While": (("cond", "body"), 0),
}
_LOOPS = ("StatelessWhile", "While")
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")

_INSTEAD = {
    tf.string: "Return numbers made from the string (tf.strings.to_number, a hash, an index), or "
    "use the string inside the cluster",
    tf.resource: "Return the values that the resource holds, or use it in clusters only",
    tf.variant: "Return its tensors: stack() of a TensorArray, to_tensor(shape=...) of a ragged "
    "tensor, get_value() of an optional",
}


@dataclasses.dataclass(frozen=True)
class _Use:
    """An op that uses a variable.

    Attributes:
        op: The op that reads or writes the variable.
        cluster: The cluster of the op, or None if it runs on the cores.
        handles: The variable's handles: one for each replica, or one for all.
    """

    op: tf.Operation
    cluster: str | None
    handles: tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class _Passed:
    """An argument of a function: the caller's tensor, and the arguments of the caller itself."""

    tensor: Any
    arguments: _Arguments


# By the id of a function's parameter. None means that its origin is ignored.
_Arguments = dict[int, _Passed | None]


def check(context: TPUReplicateContext) -> None:
    """Checks the clusters of a computation that has just been traced.

    Args:
        context: The context of the computation, whose graph is the default graph.

    Raises:
        ValueError: A cluster uses a variable on TPU cores, or a host variable that the rest of the
            computation uses too.
        TypeError: A cluster passes a string, a resource or a variant to the cores.
    """
    walk = _Walk()
    walk.visit(ops_of(tf.compat.v1.get_default_graph(), context.name), None, {})
    if any(use.cluster is not None for use in walk.uses):
        _check_variables(walk.uses, _replicated_names(context))


class _Walk:
    """Visits the ops of a computation and of the functions that it calls.

    Attributes:
        uses: The ops that read or write variables.
    """

    def __init__(self) -> None:
        self.uses: list[_Use] = []
        # Under soft device placement, ops outside clusters may move to the host automatically. For
        # a session, this setting is not known yet.
        self._cores_take_numbers_only = (
            tf.compat.v1.executing_eagerly_outside_functions()
            and not tf.config.get_soft_device_placement()
        )

    def visit(
        self, operations: Iterable[tf.Operation], cluster: str | None, arguments: _Arguments
    ) -> None:
        """Visits ops.

        Args:
            operations: The ops.
            cluster: The cluster that calls the function they are in, or None.
            arguments: The arguments of the function they are in.
        """
        for op in operations:
            inside = cluster if cluster is not None else cluster_of(op)
            if op.type in _PASSES_ON:
                continue
            for tensor in op.inputs:
                if tensor.dtype in _CANNOT_CROSS:
                    self._visit_input(op, inside, tensor, arguments)
            if op.type in _FUNCTIONS:
                self._visit_functions(op, inside, arguments)

    def _visit_input(
        self, op: tf.Operation, cluster: str | None, tensor: Any, arguments: _Arguments
    ) -> None:
        origins = tuple(_origins(tensor, arguments))
        if tensor.dtype == tf.resource and any(_is_variable(x) for x, _ in origins):
            if op.type not in _FUNCTIONS:
                self.uses.append(_Use(op, cluster, tuple(x for x, _ in origins)))
        elif cluster is None and self._cores_take_numbers_only and not _takes_any(op):
            for origin, maker in origins:
                if maker is not None:
                    _refuse_crossing(op, origin.op, maker, tensor.dtype)

    def _visit_functions(
        self, op: tf.Operation, cluster: str | None, arguments: _Arguments
    ) -> None:
        attributes, first = _FUNCTIONS[op.type]
        passed: list[_Passed | None] = [
            _Passed(tensor, arguments) for tensor in list(op.inputs)[first:]
        ]
        for attribute in attributes:
            value = op.get_attr(attribute)
            for function in value if isinstance(value, list) else [value]:
                graph = function_graph(op.graph, function.name)
                if graph is None or len(graph.inputs) != len(passed):
                    continue
                inner = {id(x): y for x, y in zip(graph.inputs, passed, strict=True)}
                self.visit(graph.get_operations(), cluster, inner)
                if cluster is None and self._cores_take_numbers_only and op.type not in _CALLS:
                    _check_results(op, graph, inner)


def _check_results(op: tf.Operation, function: Any, arguments: _Arguments) -> None:
    """Raises TypeError if a loop body or branch returns a value that a cluster in it made."""
    for result in function.outputs:
        if result.dtype in (tf.string, tf.resource):
            for origin, maker in _origins(result, dict.fromkeys(arguments)):
                if maker is not None:
                    _refuse_crossing(op, origin.op, maker, result.dtype)


def _origins(tensor: Any, arguments: _Arguments) -> Iterator[tuple[Any, str | None]]:
    """Yields the tensors that a tensor stands for, each with the cluster that made it, or None."""
    while True:
        if id(tensor) in arguments:
            passed = arguments[id(tensor)]
            if passed is None:
                return
            tensor, arguments = passed.tensor, passed.arguments
        elif isinstance(tensor, ops.EagerTensor):
            yield tensor, None
            return
        elif (outer := _captured(tensor)) is not None:
            tensor = outer
        elif tensor.op.type == "TPUReplicatedInput":
            for replica in tensor.op.inputs:
                yield from _origins(replica, arguments)
            return
        elif tensor.op.type in _PASSES_ON:
            # IdentityN has as many outputs as inputs. For the other ops, the first input counts.
            index = tensor.value_index if tensor.op.type == "IdentityN" else 0
            tensor = tensor.op.inputs[index]
        else:
            yield tensor, cluster_of(tensor.op)
            return


def _captured(tensor: Any) -> Any | None:
    """Returns the captured tensor that a placeholder in a tf.function stands for, or None."""
    if tensor.op.type != "Placeholder" or not isinstance(tensor.graph, func_graph.FuncGraph):
        return None
    return next((outer for outer, inner in tensor.graph.captures if inner is tensor), None)


def ops_of(graph: tf.Graph, computation: str) -> Iterator[tf.Operation]:
    """Yields the ops of a computation, but not those of functions that it calls."""
    for op in graph.get_operations():
        if text_attribute(op, _REPLICATE_ATTRIBUTE) == computation:
            yield op


def _takes_any(op: tf.Operation) -> bool:
    """Returns whether an op on the cores may take a value of any type from a cluster.

    Lists of tensors are unpacked before anything runs, and a loop or a function may pass its
    arguments on to a cluster inside it.
    """
    return op.type in _LOOPS or op.type in _CALLS or op.type.startswith("TensorList")


def _is_variable(handle: Any) -> bool:
    if isinstance(handle, ops.EagerTensor):
        # Tables, iterators and summary writers have no shape.
        data = getattr(handle, "_handle_data", None)
        return data is not None and bool(data.is_set)
    return bool(handle.op.type == "VarHandleOp")


def _is_on_cores(handle: Any) -> bool:
    device = tf.DeviceSpec.from_string(handle.device or "")
    return (device.device_type or "").upper() in ("TPU", "COMPOSITE")


def _key(use: _Use) -> Hashable:
    handle = use.handles[0]
    if isinstance(handle, ops.EagerTensor):
        return id(handle)
    names = [text_attribute(handle.op, name) for name in ("container", "shared_name")]
    return tuple(names) if names[1] else handle.op.name


def _check_variables(uses: list[_Use], names: dict[int, str]) -> None:
    on_cores = {_key(use): use for use in reversed(uses) if use.cluster is None}
    for use in uses:
        if use.cluster is None:
            continue
        placed_on_cores = any(_is_on_cores(handle) for handle in use.handles)
        other = on_cores.get(_key(use))
        if not placed_on_cores and other is None:
            continue
        variable = _name(use.handles[0], names)
        where = f"{_cluster(use.op, use.cluster)} uses the variable {variable} ({_place(use.op)})"
        if placed_on_cores:
            raise ValueError(
                f"{where}, which is on the TPU cores; expected no use of such variables in a "
                "cluster. To read it, pass its value: outside_compilation(f, "
                "variable.read_value()). To write it, return the new value from the cluster and "
                "assign it outside. If only clusters use the variable, create it on the host: "
                "under tf.device('CPU') and outside of the strategy's scope."
            )
        if other is not None:
            raise ValueError(
                f"{where}, and so does the rest of the computation ({_place(other.op)}); expected "
                "only one side to use it. The cores hold the variable while their program runs, "
                "and the program waits for the cluster, so a cluster that waited for the variable "
                "would wait forever. Neither side would see what the other writes. Return the "
                "value from the cluster, with read_value() after an assignment, or pass it as an "
                "argument."
            )


def _refuse_crossing(
    op: tf.Operation, made_by: tf.Operation, cluster: str, dtype: tf.DType
) -> None:
    raise TypeError(
        f"{_cluster(made_by, cluster)} makes a {dtype.name} ({_place(made_by)}) that is used on "
        f"the cores, too ({_place(op)}); expected only numbers and booleans there. "
        f"{_INSTEAD[dtype]}. Or call tf.config.set_soft_device_placement(True), which moves ops "
        "that the cores can't run to the host."
    )


def _cluster(op: tf.Operation, cluster: str) -> str:
    """Returns the name of a cluster, with the Python line that made it, if known."""
    frames = list(op.traceback or ())
    for number, frame in enumerate(frames):
        if frame.name == "outside_compilation_impl":
            line = user_line(frames[:number])
            if line:
                return f"Outside compilation cluster {cluster!r}, made at {line},"
    return f"Outside compilation cluster {cluster!r}"


def _place(op: tf.Operation) -> str:
    """Returns the type and name of an op, with the line of the user's Python that made it."""
    line = user_line(op.traceback or ())
    return f"{op.type} {op.name!r}" + (f" at {line}" if line else "")


def _name(handle: Any, replicated: dict[int, str]) -> str:
    """Returns the name by which the user knows a variable."""
    if not isinstance(handle, ops.EagerTensor):
        return repr(handle.op.name)
    # TensorFlow gives the handle of a single variable the variable's name.
    name = replicated.get(id(handle)) or getattr(handle, "_name", None)
    if name is not None:
        return repr(name)
    data = handle._handle_data.shape_and_type[0]
    return f"of dtype {tf.as_dtype(data.dtype).name} and shape {tf.TensorShape(data.shape)}"


def _replicated_names(context: TPUReplicateContext) -> dict[int, str]:
    """Returns the names of the strategy's variables that a computation uses, by their handles' ids.

    The copies of such a variable are packed into one handle, which has no name. The computation
    stores the corresponding input under the variable's name and a number.
    """
    return {
        id(handle): f"{key.rpartition('_')[0]}:0"
        for key, replicated in context._replicated_vars.items()
        for handle, _ in _origins(replicated, {})
        if isinstance(handle, ops.EagerTensor)
    }
