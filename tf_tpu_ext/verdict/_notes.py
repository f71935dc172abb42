"""What a module does that a TPU is slow at, or does otherwise."""

from __future__ import annotations

from typing import Any

from tf_tpu_ext.verdict._hlo import arrays, text, type_name
from tf_tpu_ext.verdict._places import Places
from tf_tpu_ext.verdict._records import Note

_EMULATED = {"F64": "float64", "S64": "int64", "U64": "uint64", "C128": "complex128"}
# Instructions that compute nothing.
_NAMES_ONLY = frozenset(
    {"tuple", "get-tuple-element", "constant", "parameter", "while", "conditional"}
)


def notes(module: Any) -> tuple[Note, ...]:
    """Returns what a module does that a TPU is slow at. It is the one that is asked about."""
    found: dict[tuple[str, str], Note] = {}
    places = Places(module)

    def add(kind: str, what: str, computation: Any, instruction: Any) -> None:
        old = found.get((kind, what))
        op, source = places.of(computation, instruction)
        # The first with a known line says where to look.
        if old is None or (not old.source and source):
            note = Note(kind, what, 1 + (old.count if old else 0), op, source)
        else:
            note = Note(kind, what, old.count + 1, old.op, old.source)
        found[kind, what] = note

    in_loops = _in_loops(module)
    for computation in module.computations:
        for instruction in computation.instructions:
            for name in {type_name(shape) for shape in arrays(instruction.shape)} & set(_EMULATED):
                if instruction.opcode not in _NAMES_ONLY:
                    add("emulated", _EMULATED[name], computation, instruction)
            for shape in arrays(instruction.shape):
                if any(shape.is_dynamic_dimension) and instruction.opcode not in _NAMES_ONLY:
                    add("dynamic", text(shape), computation, instruction)
            if computation.id in in_loops and _meets_host(instruction):
                add("host call in a loop", instruction.opcode, computation, instruction)
    return tuple(found.values())


def _meets_host(instruction: Any) -> bool:
    # Infeed and outfeed don't wait for the host as long as their queues serve them.
    return instruction.opcode in ("send", "recv") and bool(instruction.is_host_transfer)


def _in_loops(module: Any) -> set[int]:
    """Returns the computations that loops run."""
    calls: dict[int, set[int]] = {}
    inside: list[int] = []
    for computation in module.computations:
        called = calls.setdefault(computation.id, set())
        for instruction in computation.instructions:
            called.update(instruction.called_computation_ids)
            if instruction.opcode == "while":
                inside.extend(instruction.called_computation_ids)
    reached: set[int] = set()
    while inside:
        computation = inside.pop()
        if computation not in reached:
            reached.add(computation)
            inside.extend(calls.get(computation, ()))
    return reached
