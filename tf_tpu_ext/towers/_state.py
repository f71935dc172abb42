"""The computation that this thread is tracing, and how autograph treats our functions."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import tensorflow as tf
from tensorflow.python.autograph.core import ag_ctx
from tensorflow.python.autograph.impl import api as autograph
from tensorflow.python.distribute import distribute_lib, tpu_util

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Class = TypeVar("_Class", bound=type)


@dataclasses.dataclass
class Computation:
    """A computation for all towers, while it is being traced.

    Attributes:
        strategy: The strategy whose towers run it.
        tower_id: The number of the tower, a scalar int32 tensor.
        effects: Operations that must run even though nothing depends on them.
    """

    strategy: Any
    tower_id: tf.Tensor
    effects: list[tf.Operation] = dataclasses.field(default_factory=list)


class _Stack(threading.local):
    def __init__(self) -> None:
        self.computations: list[Computation] = []


_stack = _Stack()


def in_computation() -> bool:
    """Returns whether new ops become part of a computation on the cores."""
    return tpu_util.enclosing_tpu_context() is not None


def computation() -> Computation:
    """Returns the computation that is being traced.

    Raises:
        RuntimeError: There is none, or it has no towers.
    """
    if not _stack.computations:
        raise RuntimeError(
            "A value of the towers was used in a TPU computation without towers. Start the "
            "computation with call_for_each_tower, run_steps_on_dataset or strategy.run."
        )
    return _stack.computations[-1]


@contextlib.contextmanager
def tracing(computation: Computation) -> Iterator[Computation]:
    """Makes `computation` the computation that is being traced."""
    _stack.computations.append(computation)
    try:
        yield computation
    finally:
        _stack.computations.pop()


@contextlib.contextmanager
def cross_tower(strategy: Any) -> Iterator[None]:
    """Enters the cross-tower context of a strategy, from inside a tower."""
    distribute_lib._push_per_thread_mode(distribute_lib._CrossReplicaThreadMode(strategy))
    try:
        yield
    finally:
        distribute_lib._pop_per_thread_mode()


def transparent(function: _Function) -> _Function:
    """Keeps autograph from converting `function`, but not the functions passed to it."""
    return cast(_Function, autograph.autograph_artifact(function))


def transparent_methods(owner: _Class) -> _Class:
    """Makes all methods of a class `transparent`."""
    for member in vars(owner).values():
        if isinstance(member, types.FunctionType):
            transparent(member)
    return owner


def conversion() -> Any:
    """Returns the autograph context in which to convert the user's functions.

    Eager calls are compiled too, so autograph is enabled in them as in a `tf.function`.
    """
    context = ag_ctx.control_status_ctx()
    if tf.executing_eagerly() and context.status == ag_ctx.Status.UNSPECIFIED:
        return ag_ctx.ControlStatusCtx(ag_ctx.Status.ENABLED, context.options)
    return context


def converted(function: _Function, context: Any) -> _Function:
    """Returns `function`, converted by autograph in a context returned by `conversion`."""
    return cast(_Function, autograph.tf_convert(function, context))
