"""The data that a program's collectives move between chips."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tf_tpu_ext.verdict._hlo import arrays, sizes

# The least that a core sends for each byte of its operand, in a group of `n`.
_SENT: dict[str, Callable[[int], float]] = {
    "all-reduce": lambda n: 2 * (n - 1) / n,
    "all-gather": lambda n: n - 1,
    "all-to-all": lambda n: (n - 1) / n,
    "reduce-scatter": lambda n: (n - 1) / n,
    "collective-permute": lambda n: 1,
    "collective-broadcast": lambda n: 1,
}


@dataclasses.dataclass(frozen=True)
class Collectives:
    """The collectives in one pass through a module.

    Attributes:
        number: How many there are.
        bytes: Total bytes of their operands.
        sent: The minimum number of bytes that a core sends for them.
    """

    number: int
    bytes: int
    sent: float


def collectives(module: Any, cores: int) -> Collectives:
    """Returns the collectives of an optimized module.

    Args:
        module: An `HloModuleProto`.
        cores: How many cores run it together.
    """
    number = total = 0
    sent = 0.0
    for computation in module.computations:
        results = {instruction.id: instruction.shape for instruction in computation.instructions}
        for instruction in computation.instructions:
            share = _SENT.get(instruction.opcode.removesuffix("-start"))
            if share is None:
                continue
            operands = sum(
                sizes(shape)[1]
                for operand in instruction.operand_ids
                for shape in arrays(results[operand])
            )
            number += 1
            total += operands
            sent += operands * share(_group_size(instruction, cores))
    return Collectives(number, total, sent)


def _group_size(instruction: Any, cores: int) -> int:
    groups = instruction.replica_groups
    if groups and groups[0].replica_ids:
        return len(groups[0].replica_ids)
    described = getattr(instruction, "collective_device_list", None)
    if described is None:  # from an older TensorFlow
        return cores
    if described.replica_groups and described.replica_groups[0].replica_ids:
        return len(described.replica_groups[0].replica_ids)
    if described.HasField("iota_replica_group_list"):
        return int(described.iota_replica_group_list.num_devices_per_group)
    return cores
