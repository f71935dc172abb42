"""Calls to graph-building functions from eager code.

`replicate` and its relatives build a graph. An eager call traces that graph into a concrete
function, which is kept and reused for the same computation and the same structure, types and shapes
of inputs. Two function objects are the same computation if they have the same code, capture the
same objects and read the same globals, so a lambda in a loop is traced once.
"""

from __future__ import annotations

import dis
import functools
import threading
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import tensorflow as tf

from tf_tpu_ext import _options
from tf_tpu_ext.tpu import _arguments

# Builds the graph of a call from (computation, arguments) and returns the outputs.
Builder = Callable[[_arguments.Computation, Any], Any]

# Limits the memory of programs that make a new computation for every call.
_MAXIMUM_KEPT = 256

_PLAIN_TYPES = (bool, int, float, complex, str, bytes, type(None))


class _Same:
    """A key that stands for one object and holds it by a weak reference if possible."""

    def __init__(self, value: Any, on_death: Callable[[Any], None] | None) -> None:
        self._id = id(value)
        try:
            self._reference: Callable[[], Any] = weakref.ref(value, on_death)
        except TypeError:
            self._reference = lambda: value

    def __hash__(self) -> int:
        return hash(self._id)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, _Same) or self._id != other._id:
            return False
        mine = self._reference()
        return mine is not None and mine is other._reference()


class _TracedCalls:
    """Concrete functions by computation and options; drops the least recently used ones first."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # Reentrant: weak references may call _forget under it.
        self._calls: OrderedDict[Hashable, _TracedCall] = OrderedDict()

    def get(
        self, computation: _arguments.Computation, options: Hashable, builder: Builder
    ) -> _TracedCall:
        dead: list[Hashable] = []
        key = (
            _fingerprint(computation, functools.partial(self._forget, dead), {}),
            options,
            tf.config.get_soft_device_placement(),
            _options.current(),
        )
        dead.append(key)
        with self._lock:
            call = self._calls.get(key)
            if call is None:
                call = self._calls[key] = _TracedCall(builder)
                while len(self._calls) > _MAXIMUM_KEPT:
                    self._calls.popitem(last=False)
            else:
                self._calls.move_to_end(key)
        return call

    def clear(self) -> None:
        with self._lock:
            self._calls.clear()

    def __len__(self) -> int:
        return len(self._calls)

    def _forget(self, keys: list[Hashable], _: Any) -> None:
        with self._lock:
            for key in keys:
                self._calls.pop(key, None)


class _TracedCall:
    """One computation with its options, traced for each signature of its inputs."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        # Set only during tracing, so that what the computation captures can be collected later.
        self._tracing = threading.local()
        self._function = tf.function(self._build, autograph=False)

    def concrete(self, computation: _arguments.Computation, specs: Any) -> Any:
        self._tracing.computation = computation
        try:
            return self._function.get_concrete_function(specs)
        finally:
            self._tracing.computation = None

    def __call__(self, computation: _arguments.Computation, arguments: Any, specs: Any) -> Any:
        concrete = self.concrete(computation, specs)
        try:
            outputs, _ = concrete(arguments)
        except LookupError as error:
            if "TPUReplicated" not in str(error):
                raise
            raise LookupError(
                "A tf.GradientTape can't differentiate through a call of a replicated TPU "
                "computation, expected the gradient to be taken inside the computation. Open the "
                "tape there, or make the call under tape.stop_recording()."
            ) from error
        return outputs

    def _build(self, arguments: Any) -> Any:
        outputs = self._builder(self._tracing.computation, arguments)
        operations = [x for x in tf.nest.flatten(outputs) if isinstance(x, tf.Operation)]
        with tf.control_dependencies(operations):
            done = tf.constant(True) if operations else None
        return tf.nest.map_structure(_without_operation, outputs), done


_traced_calls = _TracedCalls()


def call(
    builder: Builder,
    options: Hashable,
    computation: _arguments.Computation,
    arguments: Any,
    shapes: list[tf.TensorShape | None] | None = None,
) -> Any:
    """Runs the graph that `builder` builds and returns its outputs as eager tensors.

    Args:
        builder: Builds the graph from the computation and the arguments.
        options: Everything else that the graph depends on.
        computation: The user's function.
        arguments: A nested structure of eager tensors and None, as returned by `to_tensors`.
        shapes: The shapes with which to trace the leaves of `arguments`, in order. None, for all
            leaves or for one, means the leaf's own shape.

    Returns:
        The outputs of the graph, with None in place of operations.
    """
    traced = _traced_calls.get(computation, options, builder)
    return traced(computation, arguments, _specs(arguments, shapes))


def concrete(
    builder: Builder, options: Hashable, computation: _arguments.Computation, arguments: Any
) -> Any:
    """Returns the function that `call` runs, which returns the outputs and what to wait for."""
    return _traced_calls.get(computation, options, builder).concrete(
        computation, _specs(arguments, None)
    )


def fingerprint(value: Any) -> Hashable:
    """Returns a key for `options`, equal for values that trace to the same graph."""
    return _fingerprint(value, lambda _: None, {})


def clear() -> None:
    """Forgets all traces."""
    _traced_calls.clear()


def identity(value: Any) -> Hashable:
    """Returns a key for `options` that identifies this object."""
    return None if value is None else _Same(value, None)


def to_tensors(arguments: Any) -> Any:
    """Returns `arguments` with all leaves except None converted to tensors."""
    return tf.nest.map_structure(_to_tensor, arguments)


def _to_tensor(value: Any) -> Any:
    if value is None or _arguments.is_composite(value):
        return value
    return tf.convert_to_tensor(value)


def _specs(arguments: Any, shapes: list[tf.TensorShape | None] | None) -> Any:
    flat = tf.nest.flatten(arguments)
    specs: list[Any] = [None if value is None else tf.type_spec_from_value(value) for value in flat]
    if shapes is not None:
        specs = [
            spec if shape is None else tf.TensorSpec(shape, spec.dtype)
            for spec, shape in zip(specs, shapes, strict=True)
        ]
    return tf.nest.pack_sequence_as(arguments, specs)


def _without_operation(value: Any) -> Any:
    return None if isinstance(value, tf.Operation) else value


def _fingerprint(value: Any, on_death: Callable[[Any], None], seen: dict[int, int]) -> Hashable:
    """Returns a key that is equal for functions that trace to the same graph."""
    if isinstance(value, _PLAIN_TYPES):
        return (type(value), repr(value))
    recurse = functools.partial(_fingerprint, on_death=on_death, seen=seen)
    if isinstance(value, tuple):
        return (type(value), tuple(recurse(x) for x in value))
    if id(value) in seen:  # A function that captures itself.
        return ("seen", seen[id(value)])
    if isinstance(value, types.FunctionType):
        seen[id(value)] = len(seen)
        return (
            value.__code__,
            _Same(value.__globals__, on_death),
            tuple(
                (name, _global_key(value.__globals__[name], on_death))
                for name in _read_globals(value.__code__)
                if name in value.__globals__
            ),
            tuple(recurse(x) for x in value.__defaults__ or ()),
            tuple((k, recurse(x)) for k, x in (value.__kwdefaults__ or {}).items()),
            tuple(recurse(_contents(cell)) for cell in value.__closure__ or ()),
            tuple((k, recurse(x)) for k, x in value.__dict__.items()),
        )
    if isinstance(value, types.MethodType):
        return ("method", recurse(value.__func__), _Same(value.__self__, on_death))
    if isinstance(value, functools.partial):
        return (
            "partial",
            recurse(value.func),
            tuple(recurse(x) for x in value.args),
            tuple((k, recurse(x)) for k, x in value.keywords.items()),
        )
    return _Same(value, on_death)


@functools.lru_cache(maxsize=1024)
def _read_globals(code: types.CodeType) -> tuple[str, ...]:
    """Returns the globals that a function reads but does not write, unlike a counter."""
    read: set[str] = set()
    written: set[str] = set()
    codes = [code]
    while codes:
        code = codes.pop()
        codes += [x for x in code.co_consts if isinstance(x, types.CodeType)]
        for instruction in dis.get_instructions(code):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                read.add(instruction.argval)
            elif instruction.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                written.add(instruction.argval)
    return tuple(sorted(read - written))


def _global_key(value: Any, on_death: Callable[[Any], None]) -> Hashable:
    return (type(value), repr(value)) if isinstance(value, _PLAIN_TYPES) else _Same(value, on_death)


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # The variable is not assigned yet.
        return None
