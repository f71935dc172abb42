"""What Python knows about traced functions: the line that made them, and their arguments."""

from __future__ import annotations

import collections
import dataclasses
import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from tf_tpu_ext._user_lines import user_line

# The same as the number of compilations that are remembered.
_MOST = 10_000
_MOST_CHARACTERS = 200
_NUMBERED = re.compile(r"^(?:__(?:inference|forward|backward)_)?(.*?)(?:_\d+)?$")


@dataclasses.dataclass(frozen=True)
class Trace:
    """One trace of a `tf.function`.

    Attributes:
        source: The line of its first op from the user's code, as `file:line`; empty if there is
            none.
        arguments: What it was traced for: for each parameter, or each part of one, the type and
            shape of a tensor, or the value of anything else.
    """

    source: str
    arguments: Mapping[str, str]


def function_of(name: str) -> str:
    """Returns the name that all traces of a Python function share.

    Args:
        name: A program's name, such as `__inference_train_step_62`.
    """
    match = _NUMBERED.match(name)
    return match.group(1) if match is not None and match.group(1) else name


class Traces:
    """The process's most recent traces, by the name that TensorFlow gave them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._traces: collections.OrderedDict[str, Trace] = collections.OrderedDict()

    def note(self, concrete_function: Any) -> None:
        """Remembers a function that has just been traced."""
        trace = Trace(
            _source(concrete_function.graph),
            dict(_arguments(concrete_function.function_type)),
        )
        name = concrete_function.name
        with self._lock:
            self._traces[name.decode() if isinstance(name, bytes) else name] = trace
            while len(self._traces) > _MOST:
                self._traces.popitem(last=False)

    def find(self, name: str) -> Trace:
        """Returns the trace that became a program, or an empty trace if there is none."""
        with self._lock:
            return self._traces.get(name, Trace("", {}))


def _source(graph: Any) -> str:
    for operation in graph.get_operations():
        if operation.type != "Placeholder" and operation.traceback is not None:
            line = user_line(operation.traceback)
            if line:
                return line
    return ""


def _arguments(function_type: Any) -> Iterator[tuple[str, str]]:
    for name, parameter in function_type.parameters.items():
        yield from _parts(name, parameter.type_constraint)


def _parts(name: str, constraint: Any) -> Iterator[tuple[str, str]]:
    """Yields the parts of a trace type with the names that Python would use."""
    if hasattr(constraint, "dtype") and hasattr(constraint, "shape"):
        yield name, f"{constraint.dtype.name}{_shape(constraint.shape)}"
        return
    kind = type(constraint).__name__
    if kind == "Literal":
        yield name, _short(repr(constraint.value))
    elif kind in ("Tuple", "List"):
        # The trace type of a list holds one of a tuple.
        parts = getattr(constraint, "components_tuple", constraint).components
        for place, part in enumerate(parts):
            yield from _parts(f"{name}[{place}]", part)
    elif kind == "Dict":
        for key, part in constraint.mapping.items():
            yield from _parts(f"{name}[{key!r}]", part)
    else:
        yield name, _short(str(constraint))


def _shape(shape: Any) -> str:
    if shape.rank is None:
        return "[...]"
    return "[" + ",".join("?" if size is None else str(size) for size in shape) + "]"


def _short(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 3] + "..."


traces = Traces()
