"""The tensors of a module: their memory, and the padding that tiles add to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tf_tpu_ext.verdict._hlo import arrays, fused, sizes, text
from tf_tpu_ext.verdict._places import Places
from tf_tpu_ext.verdict._records import Buffer

_MOST = 5
# One tile of 8 x 128 float32: less is not worth reporting.
_TILE_BYTES = 4096
# The results of these are parts or aliases of other instructions' results.
_NAMES_ONLY = frozenset(
    {"tuple", "get-tuple-element", "bitcast", "parameter", "constant", "while", "conditional"}
)


def buffers(module: Any) -> list[Buffer]:
    """Returns the tensors of a module that are in the core's main memory."""
    places = Places(module)
    found: dict[tuple[str, str, int], Buffer] = {}
    for computation, instruction in _instructions(module):
        is_argument = (
            instruction.opcode == "parameter" and computation.id == module.entry_computation_id
        )
        if instruction.opcode in _NAMES_ONLY and not is_argument:
            continue
        for shape in _in_memory(instruction.shape):
            taken, plain = sizes(shape)
            op, source = places.of(computation, instruction)
            buffer = Buffer(text(shape), taken, taken - plain, op, source)
            found.setdefault((buffer.shape, op, taken), buffer)
    return list(found.values())


def largest(found: Iterable[Buffer]) -> tuple[Buffer, ...]:
    """Returns the largest of these tensors, largest first."""
    return tuple(sorted(found, key=lambda buffer: -buffer.bytes)[:_MOST])


def most_padded(found: Iterable[Buffer]) -> tuple[Buffer, ...]:
    """Returns the tensors with the most padding, worst first."""
    padded = [buffer for buffer in found if buffer.padding >= _TILE_BYTES]
    return tuple(sorted(padded, key=lambda buffer: -buffer.padding)[:_MOST])


def padding_at_rest(module: Any) -> int:
    """Returns how many bytes of a module's arguments and results are padding.

    An argument and a result that share memory count once.
    """
    entry = next(c for c in module.computations if c.id == module.entry_computation_id)
    root = next(i for i in entry.instructions if i.id == entry.root_id)
    parameters = [i.shape for i in entry.instructions if i.opcode == "parameter"]
    shared = sum(
        _padding(_part(root.shape, alias.output_shape_index))
        for alias in module.input_output_alias.entries
    )
    return sum(map(_padding, [*parameters, root.shape])) - shared


def padding_moved(module: Any) -> int:
    """Returns how many bytes of padding one pass through a module reads and writes."""
    by_id = {
        computation.id: {instruction.id: instruction for instruction in computation.instructions}
        for computation in module.computations
    }
    total = 0
    for computation, instruction in _instructions(module):
        if instruction.opcode in _NAMES_ONLY:
            continue
        operands = (by_id[computation.id][operand] for operand in instruction.operand_ids)
        total += _padding(instruction.shape) + sum(_padding(x.shape) for x in operands)
    return total


def _instructions(module: Any) -> Iterator[tuple[Any, Any]]:
    inside = fused(module)
    for computation in module.computations:
        if computation.id not in inside:
            for instruction in computation.instructions:
                yield computation, instruction


def _in_memory(shape: Any) -> Iterator[Any]:
    """Yields the arrays that are in main memory, not on the chip itself."""
    return (array for array in arrays(shape) if not array.layout.memory_space)


def _padding(shape: Any) -> int:
    return sum(taken - plain for taken, plain in map(sizes, _in_memory(shape)))


def _part(shape: Any, index: Iterable[int]) -> Any:
    for number in index:
        shape = shape.tuple_shapes[number]
    return shape
