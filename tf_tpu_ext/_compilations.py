"""Compilation statistics: what was compiled, for which arguments, and why it was recompiled."""

from __future__ import annotations

import collections
import dataclasses
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tf_tpu_ext import _native
from tf_tpu_ext._graph_lines import lines
from tf_tpu_ext._traces import function_of, traces
from tf_tpu_ext.verdict._records import Note

# The number of earlier programs of its function that a program is compared with.
_MOST_COMPARED = 64
# Names that TensorFlow or we give to unnamed functions: only their lines tell them apart.
_SHARED_NAMES = frozenset({"_build", "lambda", "<lambda>"})
# A text, split at the bracket where its shape begins.
_Value = tuple[str, str, str]
_MISSING: _Value = ("not there", "", "")
_SIZES = ("num_replicas", "num_cores_per_replica")
_PORT = re.compile(r":\d+$")
_FAILED = "the earlier compilation had failed"
_GIVEN_UP = "the earlier program had been given up, see max_programs of tf_tpu_ext.configure"
# The suffix for a core or replica, and the numbers that tell nodes of the same name apart.
_PLACE = re.compile(r"(?:/(?:replica_\d+|R\d+|_\d+|\d+))+$")


@dataclasses.dataclass(frozen=True)
class Argument:
    """An argument of a compiled program, as one core receives it.

    Example:
        >>> import tensorflow as tf
        >>> import tf_tpu_ext
        >>> _ = tf_tpu_ext.tpu.rewrite(lambda x: x + 2.0, [tf.ones([2])])
        >>> [argument] = tf_tpu_ext.compilation_stats().programs[-1].arguments
        >>> print(argument.text, argument.bytes)
        float32[2] 8

    Attributes:
        name: A variable's name, or the argument's name in the graph; empty if unknown.
        dtype: The name of the type.
        shape: The shape, such as `[128,10]`.
        value: The value if it is compiled into the program; otherwise empty.
        bytes: The size in bytes.
        is_variable: Whether it is a variable.
        is_dynamic: Whether the shape is an upper bound, with the size known only at run time.
    """

    name: str
    dtype: str
    shape: str
    value: str
    bytes: int
    is_variable: bool
    is_dynamic: bool

    @property
    def text(self) -> str:
        """The type, the shape, and the value if there is one.

        Example:
            >>> tf_tpu_ext.Argument("n", "int32", "[]", "3", 4, False, False).text
            'int32[] = 3'
        """
        return f"{self.dtype}{self.shape}" + (f" = {self.value}" if self.value else "")


@dataclasses.dataclass(frozen=True)
class Change:
    """A difference between two programs of the same function.

    Example:
        >>> print(tf_tpu_ext.Change("images", "float32[64,784]", "float32[32,784]"))
        images: float32[64,784] -> float32[32,784]

    Attributes:
        what: The argument, parameter or option that differs.
        before: Its earlier value.
        now: Its present value.
    """

    what: str
    before: str
    now: str

    def __str__(self) -> str:
        """Returns what has changed, with the values before and after."""
        return f"{self.what}: {self.before} -> {self.now}"


@dataclasses.dataclass(frozen=True)
class Compilation:
    """One compilation of a TPU program.

    Example:
        >>> import tensorflow as tf
        >>> import tf_tpu_ext
        >>> _ = tf_tpu_ext.tpu.rewrite(lambda x: x * 2.0, [tf.ones([2])])
        >>> [program] = tf_tpu_ext.compilation_stats().programs
        >>> print(program.argument_shapes, program.num_replicas, program.error == "")
        [2] 1 True

    A function that is compiled again says why:

        >>> @tf.function
        ... def step(x, scale):
        ...     return tf_tpu_ext.tpu.rewrite(lambda x: x * scale, [x])
        >>> _ = step(tf.ones([4]), scale=2), step(tf.ones([4]), scale=3)
        >>> print(tf_tpu_ext.compilation_stats().programs[-1].compiled_again_because)
        scale: 2 -> 3

    Attributes:
        program_id: The program's number in this process.
        name: The computation's name.
        argument_shapes: The shapes of the arguments, separated by semicolons.
        num_replicas: Number of replicas.
        num_cores_per_replica: Number of cores per replica.
        stacked_replicas: Number of replicas that run as one program; 1 if each runs its own.
        lowering_seconds: Seconds spent converting the TensorFlow graph to an XLA computation.
        building_seconds: Seconds spent compiling that to machine code, or loading it from the
            compilation cache.
        restored: Whether the machine code came from the compilation cache.
        tensorflow_kernels: Number of ops that TensorFlow's CPU kernels compute.
        program_bytes: Approximate size of the compiled program in memory, in bytes.
        hits: How many more times the program was requested and found already compiled.
        error: Why the compilation failed; empty if it succeeded.
        function: The Python function's name, or the computation's if there is none.
        source: The Python line of the program's first op, as `file:line`; empty if unknown.
        arguments: The arguments that the program was compiled for.
        traced_with: What the function was traced with, by parameter name: types and shapes of
            tensors, values of anything else. Empty for a session's graph.
        options: The options that the program was compiled with.
        compared_with: The earlier program of the same function that is most similar to this one, or
            None for the function's first program.
        changes: How this program differs from that one.
        compiled_again_because: Why that one could not be reused; empty for the function's first
            program.
        notes: What a TPU is slow at, or does differently.
        argument_bytes: Memory for the arguments of one core, in bytes. Stacked replicas share their
            variables.
        result_bytes: Memory for the results, excluding variables that are overwritten.
        temporary_bytes: Memory that the program needs while it runs.
        started: When the compilation began, in seconds since 1970.
    """

    program_id: int
    name: str
    argument_shapes: str
    num_replicas: int
    num_cores_per_replica: int
    stacked_replicas: int
    lowering_seconds: float
    building_seconds: float
    restored: bool
    tensorflow_kernels: int
    program_bytes: int
    hits: int
    error: str
    function: str = ""
    source: str = ""
    arguments: tuple[Argument, ...] = ()
    traced_with: Mapping[str, str] = dataclasses.field(default_factory=dict)
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    compared_with: int | None = None
    changes: tuple[Change, ...] = ()
    compiled_again_because: str = ""
    notes: tuple[Note, ...] = ()
    argument_bytes: int = 0
    result_bytes: int = 0
    temporary_bytes: int = 0
    started: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds spent on the compilation.

        Example:
            >>> import tf_tpu_ext
            >>> _ = tf_tpu_ext.tpu.rewrite(lambda x: x * 3.0, [2.0])
            >>> tf_tpu_ext.compilation_stats().programs[-1].seconds > 0
            True
        """
        return self.lowering_seconds + self.building_seconds


class _Reason(NamedTuple):
    """Why a program was compiled; the names are those of Compilation."""

    compared_with: int
    changes: tuple[Change, ...]
    compiled_again_because: str


# Those of this process, by program_id.
_own_reasons: dict[int, _Reason] = {}


@dataclasses.dataclass(frozen=True)
class CompilationStats:
    """The compilations of this process so far, up to the last 10,000.

    Example:
        >>> import tf_tpu_ext
        >>> for _ in range(3):
        ...     _ = tf_tpu_ext.tpu.rewrite(lambda x: x * 2.0, [3.0])
        >>> stats = tf_tpu_ext.compilation_stats()
        >>> print(stats.compilations, stats.hits, stats.seconds > 0)
        1 2 True

    Attributes:
        programs: The compilations, oldest first.
    """

    programs: tuple[Compilation, ...]

    @property
    def compilations(self) -> int:
        """Number of compilations, including failed ones.

        Example:
            >>> before = tf_tpu_ext.compilation_stats().compilations
            >>> _ = tf_tpu_ext.tpu.rewrite(lambda x: x / 2.0, [3.0])
            >>> tf_tpu_ext.compilation_stats().compilations - before
            1
        """
        return len(self.programs)

    @property
    def hits(self) -> int:
        """How many times a program was requested and found already compiled.

        Example:
            >>> before = tf_tpu_ext.compilation_stats().hits
            >>> for _ in range(3):
            ...     _ = tf_tpu_ext.tpu.rewrite(lambda x: x + 1.0, [3.0])
            >>> tf_tpu_ext.compilation_stats().hits - before
            2
        """
        return sum(program.hits for program in self.programs)

    @property
    def seconds(self) -> float:
        """Total seconds spent on compilations.

        Example:
            >>> _ = tf_tpu_ext.tpu.rewrite(lambda x: x - 1.0, [3.0])
            >>> tf_tpu_ext.compilation_stats().seconds > 0
            True
        """
        return sum(program.seconds for program in self.programs)


def compilation_stats() -> CompilationStats:
    """Returns compilation statistics of TPU programs: shapes, times and cache hits.

    A compiled program is reused for the same graph, argument shapes and options for as long as it
    is kept (see `max_programs` in `tf_tpu_ext.configure`).

    Example:
        >>> import tf_tpu_ext
        >>> before = tf_tpu_ext.compilation_stats().compilations
        >>> _ = tf_tpu_ext.tpu.rewrite(lambda x: x * 2.0, [3.0])
        >>> tf_tpu_ext.compilation_stats().compilations - before
        1
    """
    records = _native.json_of("TfTpuExt_CompilationRecords")
    return CompilationStats(_compilations_of(records, _own_reasons))


def compilations_of(records: Iterable[dict[str, Any]]) -> tuple[Compilation, ...]:
    """Returns the compilations in the library's records, from this process or a worker."""
    return _compilations_of(records, {})


def _compilations_of(
    records: Iterable[dict[str, Any]], reasons: dict[int, _Reason]
) -> tuple[Compilation, ...]:
    # The last earlier program with the same graph, arguments and options, or 0.
    same = [(record.pop("same_as"), record) for record in records]
    return _with_reasons([(_compilation(record), number) for number, record in same], reasons)


def _compilation(record: dict[str, Any]) -> Compilation:
    import tensorflow as tf

    trace = traces.find(record["name"])
    arguments = tuple(
        Argument(
            **{
                **argument,
                "name": argument_name(argument["name"]),
                "dtype": tf.as_dtype(argument["dtype"]).name,
            }
        )
        for argument in record.pop("arguments")
    )
    options = dict(part.split("=", 1) for part in record.pop("options").split(";") if part)
    notes = lines.fill_notes(Note(**note) for note in record.pop("notes"))
    of_first_op = lines.find(record.pop("first_op"))
    return Compilation(
        **record,
        function=function_of(record["name"]),
        source=trace.source or of_first_op,
        arguments=arguments,
        traced_with=trace.arguments,
        options=options,
        notes=notes,
    )


def _with_reasons(
    programs: Sequence[tuple[Compilation, int]], reasons: dict[int, _Reason]
) -> tuple[Compilation, ...]:
    """Returns the programs with their reasons, and keeps those in `reasons` for the next time."""
    earlier: dict[tuple[str, str], collections.deque[_Candidate]] = {}
    by_id: dict[int, Compilation] = {}
    found = {}
    for program, same_as in programs:
        by_id[program.program_id] = program
        known = earlier.setdefault(_identity(program), collections.deque(maxlen=_MOST_COMPARED))
        reason = reasons.get(program.program_id)
        candidate = _Candidate(program)
        # The program that it names may have left the statistics.
        if reason is None or reason.compared_with not in by_id:
            reason = _find_reason(candidate, by_id.get(same_as), known)
        if reason is not None:
            found[program.program_id] = reason
        known.append(candidate)
    reasons.clear()
    reasons.update(found)
    return tuple(
        dataclasses.replace(program, **found[number]._asdict()) if number in found else program
        for number, program in by_id.items()
    )


def _find_reason(
    new: _Candidate, same: Compilation | None, earlier: Sequence[_Candidate]
) -> _Reason | None:
    if same is not None:
        return _Reason(same.program_id, (), _FAILED if same.error else _GIVEN_UP)
    # Among equally similar programs, the last one.
    nearest = min(reversed(earlier), key=new.distance, default=None)
    if nearest is None:
        return None
    changes = _changes(nearest.program, new.program)
    reason = _reason(nearest.program, new.program, changes)
    return _Reason(nearest.program.program_id, changes, reason)


class _Candidate:
    """A program with its values as they are compared, each split at its shape."""

    def __init__(self, program: Compilation) -> None:
        self.program = program

    @functools.cached_property
    def _traced_with(self) -> dict[Any, _Value]:
        return _split(self.program.traced_with)

    @functools.cached_property
    def _arguments(self) -> dict[Any, _Value]:
        return _split({place: each.text for place, each in enumerate(self.program.arguments)})

    @functools.cached_property
    def _settings(self) -> dict[Any, _Value]:
        sizes = {name: str(getattr(self.program, name)) for name in _SIZES}
        return _split({**sizes, **self.program.options})

    def distance(self, old: _Candidate) -> int:
        """Returns in how many types, shapes and other values the two differ, as _changes would."""
        distance = _unlike(old._traced_with, self._traced_with)
        if not distance and len(old._arguments) != len(self._arguments):
            distance = 1
        elif not distance:
            distance = _unlike(old._arguments, self._arguments)
        return distance + _unlike(old._settings, self._settings)


def _split(texts: Mapping[Any, str]) -> dict[Any, _Value]:
    return {name: text.partition("[") for name, text in texts.items()}


def _unlike(old: Mapping[Any, _Value], new: Mapping[Any, _Value]) -> int:
    if old == new:
        return 0
    pairs = [(old.get(name, _MISSING), new.get(name, _MISSING)) for name in {**old, **new}]
    return sum((before[0] != now[0]) + (before[1:] != now[1:]) for before, now in pairs)


def _identity(program: Compilation) -> tuple[str, str]:
    """Returns what the programs of one Python function have in common."""
    if program.function in _SHARED_NAMES:
        return program.function, program.source
    return program.function, program.source.rpartition(":")[0]


def _changes(old: Compilation, new: Compilation) -> tuple[Change, ...]:
    # In Python's terms, if those show a difference.
    changes = _differences(old.traced_with, new.traced_with)
    if not changes and len(old.arguments) != len(new.arguments):
        counts = (str(len(old.arguments)), str(len(new.arguments)))
        changes = [Change("number of arguments", *counts)]
    elif not changes:
        changes = [
            Change(after.name or f"argument {number}", before.text, after.text)
            for number, (before, after) in enumerate(zip(old.arguments, new.arguments, strict=True))
            if before.text != after.text
        ]
    settings = _differences(old.options, new.options)
    for name in _SIZES:
        if getattr(old, name) != getattr(new, name):
            settings.append(Change(name, str(getattr(old, name)), str(getattr(new, name))))
    return (*changes, *settings)


def _differences(old: Mapping[str, str], new: Mapping[str, str]) -> list[Change]:
    return [
        Change(name, old.get(name, _MISSING[0]), new.get(name, _MISSING[0]))
        for name in dict.fromkeys((*old, *new))
        if old.get(name) != new.get(name)
    ]


def _reason(old: Compilation, new: Compilation, changes: Sequence[Change]) -> str:
    if changes:
        return "; ".join(map(str, changes))
    if old.error:
        return _FAILED
    if old.name == new.name:
        return (
            "equal arguments in another graph: another session's, or another call of the function"
        )
    return (
        "traced again with equal arguments: it is another tf.function object, or a Python value "
        "that it reads from outside has changed"
    )


def argument_name(name: str) -> str:
    """Returns the Python name of an argument, as far as TensorFlow's name for it reveals it."""
    return _PLACE.sub("", _PORT.sub("", name.removeprefix("^")))
