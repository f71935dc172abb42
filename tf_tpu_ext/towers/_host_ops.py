"""Host ops in a `merge_fn`, which run once per step instead of once on every core.

While a `merge_fn` is traced, the creation of ops that only a host can run is intercepted. Ops with
side effects (printing, calling Python, writing) are created on the host and run only for tower 0;
the other towers get the results from there. Ops that prepare strings for them are recorded, and
created where they are needed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import func_graph, op_def_registry, ops
from tensorflow.python.ops import cond_v2

from tf_tpu_ext import patches
from tf_tpu_ext.patches._changes import Changes
from tf_tpu_ext.towers import _collectives, _state

# Ops with side effects on the host.
_EFFECTS = frozenset(
    {
        "CloseSummaryWriter",
        "EagerPyFunc",
        "FlushSummaryWriter",
        "Print",
        "PrintV2",
        "PyFunc",
        "PyFuncStateless",
        "Timestamp",
        "WriteAudioSummary",
        "WriteFile",
        "WriteGraphSummary",
        "WriteHistogramSummary",
        "WriteImageSummary",
        "WriteRawProtoSummary",
        "WriteScalarSummary",
        "WriteSummary",
    }
)


@dataclasses.dataclass(frozen=True)
class _Recorded:
    """An op with string inputs or outputs, with all that is needed to recreate it on the host."""

    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    inputs: list[Any]


# Takes a graph, TensorFlow's method that creates ops, and that method's arguments.
_Create = Callable[[Any, Callable[..., tf.Operation], str, Any, Any, Any], tf.Operation]


class _Active(threading.local):
    create: _Create | None = None


class _Hook:
    """Applies the patch `host_ops` while any thread traces a `merge_fn`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0

    def __enter__(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                patches.apply("towers")

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                # If other code has wrapped our method in the meantime, it stays and does nothing.
                with contextlib.suppress(RuntimeError):
                    patches.undo("host_ops")


_active = _Active()
_hook = _Hook()


def install_hook(changes: Changes) -> None:
    """Makes function graphs create ops through the thread's `_Active.create`, if it is set."""
    changes.wrap(func_graph.FuncGraph, "_create_op_internal", _create_of)


def _create_of(stock: Callable[..., tf.Operation]) -> Callable[..., tf.Operation]:
    def create(self: Any, op_type: str, inputs: Any, *args: Any, **kwargs: Any) -> tf.Operation:
        if _active.create is None:
            return stock(self, op_type, inputs, *args, **kwargs)
        return _active.create(self, functools.partial(stock, self), op_type, inputs, args, kwargs)

    return create


@contextlib.contextmanager
def once_a_step(computation: _state.Computation) -> Iterator[None]:
    """Makes host ops that are created in this context run once per step.

    This includes ops in loops and branches, which have their own graphs.
    """
    recorded: dict[tuple[int, str], _Recorded] = {}
    busy = False

    def create(
        graph: Any,
        stock: Callable[..., tf.Operation],
        op_type: str,
        inputs: Any,
        args: Any,
        kwargs: Any,
    ) -> tf.Operation:
        nonlocal busy
        if busy or not _state.in_computation():
            return stock(op_type, inputs, *args, **kwargs)
        busy = True
        try:
            inputs = list(inputs)
            call = _Recorded((op_type, *args), kwargs, inputs)
            if op_type in _EFFECTS:
                return _run_once(graph, computation, call, recorded)
            if _is_of_strings(op_type, inputs, kwargs.get("attrs")):
                with ops.control_dependencies(None), ops.device("/device:CPU:0"):
                    # Never runs. The calling TensorFlow function only needs an op to return.
                    stand_ins = [tf.compat.v1.placeholder(x.dtype, x.shape) for x in inputs]
                    operation = stock(op_type, stand_ins, *args, **kwargs)
                recorded[id(graph), operation.name] = call
                return operation
            return stock(op_type, inputs, *args, **kwargs)
        finally:
            busy = False

    outer = _active.create
    _active.create = create
    graph = tf.compat.v1.get_default_graph()
    try:
        with _hook, _in_session_graph(graph, create):
            yield
    finally:
        _active.create = outer


@contextlib.contextmanager
def _in_session_graph(graph: Any, create: _Create) -> Iterator[None]:
    """Makes a graph that is not a function graph create ops through `create`."""
    stock = graph._create_op_internal
    # In a nested merge call, the method has already been replaced.
    if isinstance(graph, func_graph.FuncGraph) or not inspect.ismethod(stock):
        yield
        return
    graph._create_op_internal = lambda op_type, inputs, *args, **kwargs: create(
        graph, stock, op_type, inputs, args, kwargs
    )
    try:
        yield
    finally:
        # Uncovers the class's method.
        del graph._create_op_internal


def _is_of_strings(op_type: str, inputs: Sequence[Any], attrs: Any) -> bool:
    """Returns whether an op has string inputs or outputs, which cores can't hold."""
    if any(x.dtype == tf.string for x in inputs):
        return True
    definition = op_def_registry.get(op_type)
    for output in () if definition is None else definition.output_arg:
        made = output.type
        if output.type_attr and attrs and output.type_attr in attrs:
            made = attrs[output.type_attr].type
        if made == tf.string.as_datatype_enum:
            return True
    return False


def _run_once(
    graph: Any,
    computation: _state.Computation,
    call: _Recorded,
    recorded: dict[tuple[int, str], _Recorded],
) -> tf.Operation:
    """Creates an op with side effects so that it runs once; returns an op with its results."""
    made: list[tf.Operation] = []

    def on_host() -> list[tf.Tensor]:
        operation = _make_again(call, recorded)
        made.append(operation)
        return _numbers(operation)

    def on_first_tower() -> list[tf.Tensor]:
        results = tf.compat.v1.tpu.outside_compilation(on_host)
        results = [x for x in tf.nest.flatten(results) if tf.is_tensor(x)]
        # In a Session's graph, only ops that the results depend on run.
        with tf.control_dependencies([*results, made[0]]):
            return [tf.constant(True), *results]

    def elsewhere() -> list[tf.Tensor]:
        return [tf.constant(False), *(tf.zeros(x.shape, x.dtype) for x in _numbers(made[0]))]

    here = tf.equal(computation.tower_id, 0)
    done, *results = cond_v2.cond_v2(here, on_first_tower, elsewhere, name="once_a_step")
    computation.effects.append(done.op)
    if isinstance(graph, func_graph.FuncGraph) and done.op not in graph.control_outputs:
        # Loop bodies and branches run only the ops that they are known to need.
        graph.control_outputs.append(done.op)
    if not results:
        with ops.control_dependencies([done]):
            return tf.no_op()
    return tf.raw_ops.IdentityN(input=[_collectives.first(x) for x in results])[0].op


def _make_again(call: _Recorded, recorded: dict[tuple[int, str], _Recorded]) -> tf.Operation:
    """Creates a recorded op in the default graph, after those whose strings it takes."""
    inputs = []
    for value in call.inputs:
        source = recorded.get((id(value.graph), value.op.name))
        if source is None:
            inputs.append(value)
        else:
            inputs.append(_make_again(source, recorded).outputs[value.value_index])
    graph = tf.compat.v1.get_default_graph()
    op_type, *arguments = call.arguments
    return graph._create_op_internal(op_type, inputs, *arguments, **call.keywords)


def _numbers(operation: tf.Operation) -> list[tf.Tensor]:
    strings = [x for x in operation.outputs if x.dtype == tf.string]
    if strings:
        raise TypeError(
            f"{operation.name} of a merge_fn returns strings, expected numbers, because cores "
            "can't hold strings. Use them in the same Python function, or return numbers."
        )
    unknown = [x for x in operation.outputs if not x.shape.is_fully_defined()]
    if unknown:
        raise ValueError(
            f"{operation.name} of a merge_fn returns a result of shape {unknown[0].shape}, "
            "expected a static shape, because the other towers wait for a tensor of that shape. "
            "Return nothing (Tout=[]), or call it outside of the towers."
        )
    return list(operation.outputs)
