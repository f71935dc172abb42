"""The modules of a question and its answer: shapes, their sizes, and which computations fuse."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any


def parse(data: bytes) -> Any:
    """Parses a serialized module into an `HloModuleProto`."""
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
    """Returns the Python line in an instruction's metadata, as `file:line`; empty if unknown."""
    file = metadata.source_file
    return f"{file}:{metadata.source_line}" if file else ""


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
    """Returns the size of an array in bytes, in tiles as on the core, and without padding."""
    dimensions = [int(size) for size in shape.dimensions]
    plain = padded = math.prod(dimensions)
    tiles = shape.layout.tiles
    if tiles and dimensions:
        order = [dimensions[i] for i in shape.layout.minor_to_major]
        # Only the first tile counts: tiles within it merely change the order.
        for place, tile in enumerate(reversed(tiles[0].dimensions)):
            if place < len(order):
                order[place] = -(-order[place] // max(1, tile)) * max(1, tile)
            elif tile > 1:
                order.append(tile)
        padded = math.prod(order)
    bits = _item_bits(shape)
    return -(-padded * bits // 8), -(-plain * bits // 8)


def fused(module: Any) -> set[int]:
    """Returns the computations whose instructions do not have their own memory."""
    inside = {
        called
        for computation in module.computations
        for instruction in computation.instructions
        if instruction.opcode not in ("while", "conditional", "call", "async-start")
        for called in instruction.called_computation_ids
    }
    return inside - {module.entry_computation_id}
