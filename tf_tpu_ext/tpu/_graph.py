"""Guards around TensorFlow's graph-building functions."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import tensorflow as tf

from tf_tpu_ext.tpu import _arguments

_Function = TypeVar("_Function", bound=Callable[..., Any])


def unconverted(function: _Function) -> _Function:
    """Keeps autograph from converting a function and the computations that it calls.

    Autograph leaves TensorFlow's own functions alone in the same way.
    """
    return cast(_Function, tf.autograph.experimental.do_not_convert(function))


def checked(caller: str, computation: _arguments.Computation) -> _arguments.Computation:
    """Returns `computation` with a check of its outputs.

    The returned function takes any number of arguments, because TensorFlow would count `self` as a
    missing argument of a bound method. `check_arity` has already checked their number.
    """

    def checked_computation(*arguments: Any) -> Any:
        outputs = computation(*arguments)
        _check_outputs(caller, outputs)
        return outputs

    marker = getattr(computation, "step_marker_location", None)
    if marker is not None:
        checked_computation.step_marker_location = marker  # type: ignore[attr-defined]
    return checked_computation


@contextlib.contextmanager
def building() -> Iterator[None]:
    """Works around two problems in how TensorFlow builds a computation in the default graph.

    TensorFlow names the computation after the graph's function, which fails for a lambda. And if
    the computation raises an error, TensorFlow does not restore the variable scope's settings.
    """
    graph = tf.compat.v1.get_default_graph()
    name = getattr(graph, "name", None)
    scope = tf.compat.v1.get_variable_scope()
    use_resource, custom_getter = scope.use_resource, scope.custom_getter
    try:
        if isinstance(name, str):
            graph.name = re.sub(r"[^A-Za-z0-9_./-]", "_", name)
        yield
    except BaseException:
        scope.set_use_resource(use_resource)
        scope.set_custom_getter(custom_getter)
        raise
    finally:
        if isinstance(name, str):
            graph.name = name


def _check_outputs(caller: str, outputs: Any) -> None:
    """Raises ValueError for operations in places where they can't be dropped.

    TensorFlow has such a check, but it compares tensors in a way that fails inside a function.
    """
    flat = tf.nest.flatten(outputs)
    is_operation = [isinstance(output, tf.Operation) for output in flat]
    if not any(is_operation):
        return
    if isinstance(outputs, (list, tuple)) and len(outputs) == len(flat):
        if is_operation == sorted(is_operation) and not any(map(tf.nest.is_nested, outputs)):
            return
    elif not tf.nest.is_nested(outputs):
        return
    operation = flat[is_operation.index(True)].name
    raise ValueError(
        f"{caller} got outputs of structure {_arguments.structure_of(outputs)} with the operation "
        f"{operation!r} in it, expected operations only after the tensors of a flat list. Return "
        "tensors that depend on it by tf.control_dependencies."
    )
