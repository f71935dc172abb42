"""What the modules of a question and its answer tell: padding, types, transfers, collectives."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from tf_tpu_ext.verdict._records import Buffer, Note

_MOST = 5
_EMULATED = {"F64": "float64", "S64": "int64", "U64": "uint64", "C128": "complex128"}
_COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "all-to-all",
    "reduce-scatter",
    "collective-permute",
    "collective-broadcast",
)
# Their results are parts or other names of other instructions' results.
_NAMES_ONLY = frozenset(
    {"tuple", "get-tuple-element", "bitcast", "parameter", "constant", "while", "conditional"}
)


def parse(data: bytes) -> Any:
    """Returns a serialized module as an `HloModuleProto`."""
    from tensorflow.compiler.xla.service import hlo_pb2

    return hlo_pb2.HloModuleProto.FromString(data)


def type_name(shape: Any) -> str:
    """Returns the name of an array's type, such as `F32`."""
    from tensorflow.compiler.xla import xla_data_pb2

    return str(xla_data_pb2.PrimitiveType.Name(shape.element_type))


def text(shape: Any) -> str:
    """Returns an array's type and shape, such as `f32[128,1]`."""
    return f"{type_name(shape).lower()}[{','.join(map(str, shape.dimensions))}]"


def where(metadata: Any) -> str:
    """Returns the Python line of an instruction's metadata, as `file:line`, or an empty text."""
    if not metadata.source_file or metadata.source_file.startswith("dummy_file"):
        return ""
    return f"{metadata.source_file}:{metadata.source_line}"


def arrays(shape: Any) -> Iterator[Any]:
    """Yields the arrays of a shape, which may be a tuple of tuples."""
    if shape.tuple_shapes:
        for part in shape.tuple_shapes:
            yield from arrays(part)
    elif type_name(shape) not in ("TOKEN", "TUPLE", "OPAQUE_TYPE"):
        yield shape


def _item_bits(shape: Any) -> int:
    name = type_name(shape)
    if shape.layout.element_size_in_bits:
        return int(shape.layout.element_size_in_bits)
    digits = "".join(c for c in name[1:4] if c.isdigit()) if name != "BF16" else "16"
    return 8 if name == "PRED" or not digits else int(digits)


def sizes(shape: Any) -> tuple[int, int]:
    """Returns the bytes of an array as its core has it, in tiles, and without any padding."""
    dimensions = [int(size) for size in shape.dimensions]
    plain = padded = math.prod(dimensions)
    tiles = shape.layout.tiles
    if tiles and dimensions:
        order = [dimensions[i] for i in shape.layout.minor_to_major]
        # The first tile counts: those within it only change the order.
        for place, tile in enumerate(reversed(tiles[0].dimensions)):
            if place < len(order):
                order[place] = -(-order[place] // max(1, tile)) * max(1, tile)
            elif tile > 1:
                order.append(tile)
        padded = math.prod(order)
    bits = _item_bits(shape)
    return -(-padded * bits // 8), -(-plain * bits // 8)


def buffers(module: Any) -> list[Buffer]:
    """Returns the tensors of an optimized module that stand in the core's main memory."""
    fused = _fused(module)
    found: dict[tuple[str, str, int], Buffer] = {}
    for computation in module.computations:
        is_entry = computation.id == module.entry_computation_id
        if computation.id in fused:
            continue
        for instruction in computation.instructions:
            if instruction.opcode in _NAMES_ONLY and not (
                is_entry and instruction.opcode == "parameter"
            ):
                continue
            for shape in arrays(instruction.shape):
                if shape.layout.memory_space:
                    continue  # on the chip itself
                taken, plain = sizes(shape)
                op = instruction.metadata.op_name or instruction.name
                buffer = Buffer(text(shape), taken, taken - plain, op, where(instruction.metadata))
                found.setdefault((buffer.shape, op, taken), buffer)
    return list(found.values())


def largest(found: Iterable[Buffer]) -> tuple[Buffer, ...]:
    """Returns the largest of these tensors, largest first."""
    return tuple(sorted(found, key=lambda buffer: -buffer.bytes)[:_MOST])


def most_padded(found: Iterable[Buffer]) -> tuple[Buffer, ...]:
    """Returns the tensors with the most padding, worst first."""
    padded = [buffer for buffer in found if buffer.padding]
    return tuple(sorted(padded, key=lambda buffer: -buffer.padding)[:_MOST])


def _fused(module: Any) -> set[int]:
    """Returns the computations whose instructions have no memory of their own."""
    inside = {
        called
        for computation in module.computations
        for instruction in computation.instructions
        if instruction.opcode not in ("while", "conditional", "call", "async-start")
        for called in instruction.called_computation_ids
    }
    return inside - {module.entry_computation_id}


def collectives(module: Any) -> tuple[int, int]:
    """Returns the number of a module's collectives and the bytes of their operands."""
    number = total = 0
    for computation in module.computations:
        results = {instruction.id: instruction.shape for instruction in computation.instructions}
        for instruction in computation.instructions:
            if instruction.opcode.removesuffix("-start") not in _COLLECTIVES:
                continue
            number += 1
            for operand in instruction.operand_ids:
                total += sum(sizes(shape)[1] for shape in arrays(results[operand]))
    return number, total


def notes(module: Any) -> tuple[Note, ...]:
    """Returns what a module does that a TPU is slow at. It is the one that is asked about."""
    found: dict[tuple[str, str], Note] = {}

    def add(kind: str, what: str, instruction: Any) -> None:
        old = found.get((kind, what))
        metadata = instruction.metadata
        op = metadata.op_name or instruction.name
        # The first with a known op says where to look.
        if old is None or (not old.source and where(metadata)):
            note = Note(kind, what, 1 + (old.count if old else 0), op, where(metadata))
        else:
            note = Note(kind, what, old.count + 1, old.op, old.source)
        found[kind, what] = note

    in_loops = _in_loops(module)
    for computation in module.computations:
        for instruction in computation.instructions:
            for name in {type_name(shape) for shape in arrays(instruction.shape)} & set(_EMULATED):
                if instruction.opcode not in ("constant", "tuple", "get-tuple-element"):
                    add("emulated", _EMULATED[name], instruction)
            for shape in arrays(instruction.shape):
                if any(shape.is_dynamic_dimension) and instruction.opcode not in _NAMES_ONLY:
                    add("dynamic", text(shape), instruction)
            if computation.id in in_loops and _meets_host(instruction):
                add("host call in a loop", instruction.opcode, instruction)
    return tuple(found.values())


def _meets_host(instruction: Any) -> bool:
    if instruction.opcode in ("infeed", "outfeed"):
        return True
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
