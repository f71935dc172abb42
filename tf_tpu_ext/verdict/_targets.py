"""The TPUs that can be a target: names, shapes, and data sheet figures."""

from __future__ import annotations

import dataclasses
import math
import re

_MOST_CORES = 1024


@dataclasses.dataclass(frozen=True)
class Generation:
    """A generation of TPUs.

    Attributes:
        name: The name, such as `v5e`.
        compiler_name: The TPU compiler's name for it.
        cores: Number of cores per chip that programs see. The two cores of v4 and v5p act as one.
        counted: Number of cores that a chip counts as in names such as `v4-8`.
        dimensions: Whether chips form a plane (2) or a solid (3).
        flops: Peak operations per second of a core, for bfloat16.
        bandwidth: Bytes per second between a core and its memory.
        interconnect: Bytes per second that a core can send to other chips.
        chip_config: The TPU compiler's setting for the chip's cores; empty for its default.
    """

    name: str
    compiler_name: str
    cores: int
    counted: int
    dimensions: int
    flops: float
    bandwidth: float
    interconnect: float
    chip_config: str = ""


# The peaks are from Google's pages on each version, which give them per chip:
# https://cloud.google.com/tpu/docs/system-architecture-tpu-vm
# The interconnect figures there are for both directions, so half counts. Those for v2 and v3 are
# from "A domain-specific supercomputer for training deep neural networks" (2020): four links.
GENERATIONS = {
    generation.name: generation
    for generation in (
        Generation("v2", "v2", 2, 2, 2, 46e12 / 2, 700e9 / 2, 248e9 / 2),
        Generation("v3", "v3", 2, 2, 2, 123e12 / 2, 900e9 / 2, 328e9 / 2),
        Generation("v4", "v4", 1, 2, 3, 275e12, 1228e9, 300e9, "megacore"),
        Generation("v5e", "v5e", 1, 1, 2, 197e12, 819e9, 200e9),
        Generation("v5p", "v5p", 1, 2, 3, 459e12, 2765e9, 600e9),
        Generation("v6e", "v6e", 1, 1, 2, 918e12, 1640e9, 400e9),
        Generation("7x", "tpu7x", 2, 2, 3, 2307e12 / 2, 7380e9 / 2, 600e9 / 2),
    )
}
_OTHER_NAMES = {"v5litepod": "v5e", "tpu7x": "7x", "v7x": "7x"}


@dataclasses.dataclass(frozen=True)
class Target:
    """A TPU slice that programs are checked for.

    Attributes:
        name: The name as given, such as `v5e-8`.
        generation: The generation.
        chips: Number of chips in each direction, `(x, y, z)`.
    """

    name: str
    generation: Generation
    chips: tuple[int, int, int]

    @property
    def mesh_shape(self) -> tuple[int, int, int, int]:
        """The size `(x, y, z, cores per chip)` of the topology."""
        return (*self.chips, self.generation.cores)

    @property
    def cores(self) -> int:
        """Number of cores that programs see."""
        return math.prod(self.mesh_shape)

    @property
    def topology(self) -> str:
        """The TPU compiler's name for the target, such as `v5e:2x4`."""
        shape = self.chips[: self.generation.dimensions]
        return f"{self.generation.compiler_name}:{'x'.join(map(str, shape))}"


def parse(name: str) -> Target:
    """Returns the target for a name such as `v5e-8` or `v5e:2x4`.

    Raises:
        ValueError: There is no such TPU.

    Example:
        >>> from tf_tpu_ext.verdict import _targets
        >>> target = _targets.parse("v3-8")
        >>> print(target.topology, target.cores, target.mesh_shape)
        v3:2x2 8 (2, 2, 1, 2)
        >>> _targets.parse("v5litepod-16").topology
        'v5e:4x4'
    """
    match = re.fullmatch(r"(\w+?)(?:-(\d+)|:(\d+(?:x\d+)*))", name.strip().lower())
    generation = match and GENERATIONS.get(_OTHER_NAMES.get(match[1], match[1]))
    if not match or not generation:
        raise ValueError(
            f"{name!r} names no TPU. Expected a generation ({', '.join(GENERATIONS)}) with a "
            "number, as in v5e-8, or with the shape of its chips, as in v5e:2x4."
        )
    if match[2]:
        chips, rest = divmod(int(match[2]), generation.counted)
        shape = _slice(chips, generation.dimensions) if rest == 0 else None
        if shape is None:
            raise ValueError(
                f"There is no TPU slice {name}. Expected one of {_sizes(generation)}, or the shape "
                f"of its chips, as in {generation.name}:{'x'.join('2' * generation.dimensions)}."
            )
    else:
        given = [int(extent) for extent in match[3].split("x")]
        if len(given) != generation.dimensions or 0 in given:
            raise ValueError(
                f"The chips of {generation.name} form {generation.dimensions} dimensions of 1 or "
                f"more. Received: {name!r}"
            )
        shape = (given[0], given[1], given[2] if len(given) > 2 else 1)
    target = Target(name, generation, shape)
    if target.cores > _MOST_CORES:
        raise ValueError(
            f"{name} has {target.cores} cores. A virtual TPU has at most {_MOST_CORES}."
        )
    return target


def _slice(chips: int, dimensions: int) -> tuple[int, int, int] | None:
    """Returns the shape in which that many chips are offered, or None."""
    if chips == 1:
        return (1, 1, 1)
    if chips < 4 or chips & (chips - 1):
        return None
    power = chips.bit_length() - 1
    if dimensions == 2:
        return (1 << power // 2, 1 << (power + 1) // 2, 1)
    if chips == 4:
        return (2, 2, 1)
    return (1 << power // 3, 1 << (power + 1) // 3, 1 << (power + 2) // 3)


def _sizes(generation: Generation) -> str:
    counts = [1, *(1 << power for power in range(2, 11))]
    names = [
        f"{generation.name}-{count * generation.counted}"
        for count in counts
        if count * generation.cores <= _MOST_CORES
    ]
    return ", ".join(names)
